//! The brokers that are published again and again.

use super::broker::ClientTallies;
use super::{Closing, Series, TURN};
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
    broker: Box<dyn Observe>,
    /// What an earlier broker of the same series had counted.
    before: BrokerCounts,
    last: BrokerStats,
    clients: ClientTallies,
}

/// A broker of any backend, not kept alive.
trait Observe: fmt::Debug + Send + Sync {
    /// `None` once it is gone, with its clients and plans. Whoever calls it has the turn.
    fn observe(&self) -> Option<Seen>;

    /// Whether somebody has the broker, which those who look at it have not: whoever calls it has the turn.
    fn is_there(&self) -> bool;
}

#[derive(Debug)]
struct Seen {
    stats: BrokerStats,
    clients: Vec<RegisteredClient>,
    /// The broker itself, where all others who had it dropped it meanwhile.
    last: Option<Closing>,
}

impl<B: Backend> Observe for WeakBroker<B> {
    fn observe(&self) -> Option<Seen> {
        let broker = self.upgrade()?;
        let (stats, clients) = (broker.stats(), broker.clients());
        Some(Seen { stats, clients, last: broker.into_last().map(|last| Box::new(last) as Closing) })
    }

    fn is_there(&self) -> bool {
        WeakBroker::is_there(self)
    }
}

impl Brokers {
    pub(super) fn add<B: Backend>(&self, broker: &Broker<B>) -> Result<(), Error> {
        let (series, last) = (Series::of_broker(broker), broker.stats());
        let _turn = TURN.lock();
        let mut listed = self.listed.lock();
        if let Some(other) = listed.brokers.iter().find(|other| other.series == series) {
            if other.broker.is_there() {
                return Err(Error::Configuration {
                    field: "name",
                    value: broker.name().to_owned(),
                    reason: "a broker of this name on this device is published already; give each broker a name of its own"
                        .into(),
                });
            }
            listed.forget(&series);
        }
        let (before, clients) = listed.gone.get(&series).cloned().unwrap_or_default();
        let broker = Box::new(broker.downgrade());
        listed.brokers.push(ListedBroker { series, broker, before, last, clients });
        Ok(())
    }

    /// Copies the statistics of all brokers to the current recorder.
    /// Returns whether some are gone, whose last figures these are.
    pub(super) fn publish(&self) -> bool {
        // Before the locks, so that these go out of them whatever a recorder does.
        let mut closing = Vec::new();
        let turn = TURN.lock();
        let mut listed = self.listed.lock();
        let mut gone = Vec::new();
        for entry in &mut listed.brokers {
            match entry.broker.observe() {
                Some(Seen { stats, clients, last }) => {
                    let clients = entry.clients.take_in(&clients);
                    let counts = stats.counts.counting_on(&entry.before);
                    entry.last = stats;
                    entry.series.publish_broker(&BrokerStats { counts, ..entry.last.clone() }, &clients);
                    closing.extend(last);
                }
                None => gone.push(entry.series.clone()),
            }
        }
        gone.iter().for_each(|series| listed.forget(series));
        drop((listed, turn));
        // Their memory goes back to the device, and hooks are told.
        drop(closing);
        !gone.is_empty()
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
