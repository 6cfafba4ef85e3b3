//! The brokers that are published again and again.

use super::Series;
use super::broker::ClientTallies;
use crate::broker::{Broker, BrokerCounts, BrokerStats, RegisteredClient, WeakBroker};
use crate::error::Error;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use vrampool_backend::Backend;

/// The brokers that one publisher publishes.
#[derive(Debug, Clone, Default)]
pub(super) struct Brokers {
    listed: Arc<Mutex<Listed>>,
}

#[derive(Debug, Default)]
struct Listed {
    brokers: Vec<ListedBroker>,
    /// What those that are gone had counted: a counter never falls, so another broker of the same series goes on there.
    gone: HashMap<Series, (BrokerCounts, ClientTallies)>,
}

#[derive(Debug)]
struct ListedBroker {
    series: Series,
    broker: Arc<dyn Observe>,
    /// What an earlier broker of the same series had counted.
    before: BrokerCounts,
    last: BrokerStats,
    clients: ClientTallies,
}

/// A broker of any backend, not kept alive.
trait Observe: fmt::Debug + Send + Sync {
    /// `None` once it is gone, with its clients and plans.
    fn observe(&self) -> Option<(BrokerStats, Vec<RegisteredClient>)>;
}

impl<B: Backend> Observe for WeakBroker<B> {
    fn observe(&self) -> Option<(BrokerStats, Vec<RegisteredClient>)> {
        let broker = self.upgrade()?;
        Some((broker.stats(), broker.clients()))
    }
}

impl Brokers {
    pub(super) fn add<B: Backend>(&self, broker: &Broker<B>) -> Result<(), Error> {
        let series = Series::of_broker(broker);
        let same = |brokers: &[ListedBroker]| {
            brokers.iter().find(|other| other.series == series).map(|other| Arc::clone(&other.broker))
        };
        let published = same(&self.listed.lock().brokers);
        if let Some(other) = published {
            if other.observe().is_some() {
                return Err(Error::Configuration {
                    field: "name",
                    value: broker.name().to_owned(),
                    reason: "a broker of this name on this device is published already; give each broker a name of its own"
                        .into(),
                });
            }
            self.listed.lock().forget(&series);
        }
        let last = broker.stats();
        let mut listed = self.listed.lock();
        let (before, clients) = listed.gone.get(&series).cloned().unwrap_or_default();
        listed.brokers.push(ListedBroker {
            series,
            broker: Arc::new(broker.downgrade()),
            before,
            last,
            clients,
        });
        Ok(())
    }

    /// Copies the statistics of all brokers to the current recorder. Asks them outside the lock: a broker whose last handle goes in the
    /// meantime is closed here.
    pub(super) fn publish(&self) {
        let of = |listed: &ListedBroker| (listed.series.clone(), Arc::clone(&listed.broker));
        let brokers: Vec<_> = self.listed.lock().brokers.iter().map(of).collect();
        for (series, broker) in brokers {
            let observed = broker.observe();
            let mut listed = self.listed.lock();
            let Some(entry) = listed.brokers.iter_mut().find(|entry| entry.series == series) else {
                continue;
            };
            match observed {
                Some((stats, clients)) => {
                    let clients = entry.clients.take_in(&clients);
                    let counts = stats.counts.counting_on(&entry.before);
                    entry.last = stats;
                    series.publish_broker(&BrokerStats { counts, ..entry.last.clone() }, &clients);
                }
                None => listed.forget(&series),
            }
        }
    }
}

impl Listed {
    /// Takes out a broker that is gone, after publishing that it holds nothing: a recorder keeps a gauge's last value for ever.
    fn forget(&mut self, series: &Series) {
        let Some(index) = self.brokers.iter().position(|broker| broker.series == *series) else { return };
        let ListedBroker { series, before, last, mut clients, .. } = self.brokers.swap_remove(index);
        let counts = last.counts.counting_on(&before);
        let BrokerStats { budget, reserve, peak_staging, pinned_budget, .. } = last;
        let nothing =
            BrokerStats { counts, budget, reserve, peak_staging, pinned_budget, ..BrokerStats::default() };
        series.publish_broker(&nothing, &clients.take_in(&[]));
        self.gone.insert(series, (counts, clients));
    }
}
