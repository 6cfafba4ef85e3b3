//! The metrics of a broker: its shares, the memory held of them, and its counters.

use crate::handle::Broker;
use crate::id::ClientId;
use crate::state::BrokerCore;
use crate::stats::{BrokerStats, ClientStats, LastFigures, RegisteredClient};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use vrampool::figures::{Figure, Group};
use vrampool::telemetry::{Closing, Observed, Owner, OwnerFigures, Watch};
use vrampool_backend::fork::ForkArc;
use vrampool_backend::{Backend, fork};

/// The exported figures of a broker. Each metric has the labels `broker`, `backend` and `device`. Clients of one name
/// are one series, with the sum of their figures.
///
/// ```
/// assert!(vrampool_broker::METRICS.iter().all(|figure| figure.metric.starts_with("vrampool_broker_")));
/// ```
pub static METRICS: LazyLock<Vec<&'static Figure>> = LazyLock::new(|| {
    let figures = [BrokerStats::table(), ClientStats::table()].concat();
    figures.into_iter().filter(|figure| figure.is_exported()).collect()
});

/// Names of ended clients that are remembered. Beyond that all are forgotten: their series end.
const MOST_ENDED_CLIENTS: usize = 1024;

/// The statistics of a broker, for [`publish`](vrampool::telemetry::publish) and for publishers. Its pool
/// is a pool like any, and is published as one.
///
/// ```
/// # use vrampool::host::HostDevice;
/// # use vrampool_broker::{Broker, METRICS};
/// use vrampool::telemetry::{describe, publish};
/// # fn main() -> Result<(), vrampool_broker::BrokerError> {
/// # let broker = Broker::builder(&HostDevice::new()).build()?;
/// describe(&METRICS);
/// publish(&broker); // from a timer of the application
/// publish(&broker.pool());
/// # Ok(())
/// # }
/// ```
impl<B: Backend> Owner for Broker<B> {
    type Device = B;

    const LABEL: &'static str = "broker";

    fn name(&self) -> &str {
        self.name()
    }

    fn device(&self) -> &B {
        self.device()
    }

    fn figures(&self) -> OwnerFigures {
        ClientTallies::default().figures(&self.stats(), &self.listed_clients())
    }

    fn watch(&self) -> impl Watch + 'static {
        WatchedBroker::new(self)
    }
}

impl<B: Backend> Broker<B> {
    /// Returns [`clients`](Self::clients), and clients that deregistered since the broker was first watched, with
    /// their final counters. At most the 256 latest are kept.
    fn listed_clients(&self) -> Vec<RegisteredClient> {
        if fork::is_child() { Vec::new() } else { self.core.listed_clients() }
    }
}

/// Figures of clients by name. Those of ended clients are included as long as the broker exists, because a counter
/// never falls.
#[derive(Debug, Clone, Default)]
struct ClientTallies {
    ended: BTreeMap<String, ClientStats>,
    seen: BTreeMap<ClientId, (String, ClientStats)>,
}

impl ClientTallies {
    fn figures(&mut self, stats: &BrokerStats, clients: &[RegisteredClient]) -> OwnerFigures {
        let mut figures = OwnerFigures::of(stats);
        for (name, client) in self.take_in(clients) {
            figures.add(&name, &client);
        }
        figures
    }

    /// Returns the figures of `clients`, by name, with the counts of clients that were seen before and have ended. A
    /// client that was registered and ended since the last call was not seen.
    fn take_in(&mut self, clients: &[RegisteredClient]) -> BTreeMap<String, ClientStats> {
        let seen = clients.iter().map(|client| (client.id, (client.name.clone(), client.stats)));
        for (id, (name, stats)) in std::mem::replace(&mut self.seen, seen.collect()) {
            if !self.seen.contains_key(&id) {
                self.ended.entry(name).or_default().count_on(&stats);
            }
        }
        if self.ended.len() > MOST_ENDED_CLIENTS {
            self.ended.clear();
        }
        let mut tallies = self.ended.clone();
        for RegisteredClient { name, stats, .. } in clients {
            tallies.entry(name.clone()).or_default().merge(stats);
        }
        tallies
    }
}

/// A broker that is not kept alive, and its figures once it has ended.
struct WatchedBroker<B: Backend> {
    core: Weak<BrokerCore<B>>,
    /// Set at the drop of its last handle, client or plan. The broker holds the other handle as long as it may set it.
    last: Arc<OnceLock<LastFigures>>,
    clients: ClientTallies,
}

impl<B: Backend> WatchedBroker<B> {
    fn new(broker: &Broker<B>) -> Self {
        Self {
            core: ForkArc::downgrade(&broker.core),
            last: Arc::clone(&broker.core.last),
            clients: ClientTallies::default(),
        }
    }
}

impl<B: Backend> Watch for WatchedBroker<B> {
    fn observe(&mut self) -> Observed {
        if let Some(core) = self.core.upgrade() {
            let broker = Broker { core: ForkArc::from(core) };
            let figures = self.clients.figures(&broker.stats(), &broker.listed_clients());
            let last = ForkArc::into_inner(broker.core).map(|last| Box::new(last) as Closing);
            return Observed::There(figures, last);
        }
        // In this order: a broker sets its last figures before it drops its handle of them.
        let is_final = Arc::get_mut(&mut self.last).is_some();
        match self.last.get() {
            Some(LastFigures { stats, clients }) => {
                Observed::Ended(Some(self.clients.figures(stats, clients)))
            }
            None if is_final => Observed::Ended(None),
            None => Observed::Ending,
        }
    }

    fn is_there(&self) -> bool {
        self.core.strong_count() > 0
    }

    fn place(&self) -> usize {
        self.core.as_ptr().addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::request::ArrayRequest;
    use vrampool::host::HostDevice;

    #[test]
    fn a_broker_that_ends_leaves_its_final_figures_and_those_of_its_clients() {
        let device = HostDevice::builder().memory_limit(1 << 20).build();
        let broker = Broker::builder(&device).build().expect("a broker");
        drop(broker.register(Client::new("before")).expect("a client"));
        let weak = WatchedBroker::new(&broker);
        assert!(weak.last.get().is_none() && broker.listed_clients().is_empty(), "no exporter watched");

        let client = broker.register(Client::new("solver").group("solver")).expect("a client");
        client.queue(ArrayRequest::scratch("numbers", [1000], 4).chunk_axis(0)).expect("a request");
        let plan = broker.commit("solver").expect("memory");
        plan.run(|_, _| Ok(())).expect("no fault");
        broker.evict_all().expect("no callback");
        let id = client.id();
        drop(client);
        let listed = broker.listed_clients();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].id, listed[0].name.as_str()), (id, "solver"));
        assert_eq!(listed[0].stats, ClientStats { chunks: 1, evictions: 1, ..ClientStats::default() });
        assert!(broker.clients().is_empty(), "it is not registered");

        let before = broker.stats().counts;
        assert_eq!((before.runs, before.chunks, before.evictions), (1, 1, 1));
        drop(broker);
        assert!(weak.is_there() && weak.last.get().is_none(), "the plan keeps it");
        plan.run(|_, _| Ok(())).unwrap_err();
        drop(plan);
        assert!(!weak.is_there());
        let last = weak.last.get().expect("it ended");
        assert_eq!((last.stats.counts.runs, last.stats.counts.commits_refused), (1, 1));
        assert_eq!((last.stats.clients, last.stats.held_bytes), (0, 0));
        assert_eq!(last.clients, listed);
    }

    #[test]
    fn deregistered_clients_are_kept_up_to_a_bound() {
        let device = HostDevice::builder().memory_limit(1 << 20).build();
        let broker = Broker::builder(&device).build().expect("a broker");
        let _weak = WatchedBroker::new(&broker);
        let register = |number: usize| broker.register(Client::new(number.to_string())).expect("a client");
        (0..300).for_each(|number| drop(register(number)));
        let names: Vec<_> = broker.listed_clients().into_iter().map(|client| client.name).collect();
        assert_eq!(names, (44..300).map(|number| number.to_string()).collect::<Vec<_>>(), "the last ones");
    }

    #[test]
    fn names_of_clients_that_come_and_go_are_bounded() {
        let broker = Broker::builder(&HostDevice::new()).build().expect("a broker");
        let _weak = WatchedBroker::new(&broker);
        let mut tallies = ClientTallies::default();
        for round in 0..10 {
            for number in 0..200 {
                drop(broker.register(Client::new(format!("{round}-{number}"))).expect("a client"));
            }
            let listed = broker.listed_clients();
            let figures = tallies.take_in(&listed);
            assert!(
                listed.iter().all(|client| figures.contains_key(&client.name)),
                "those that are listed are there"
            );
            assert!(tallies.ended.len() <= MOST_ENDED_CLIENTS && tallies.seen.len() <= listed.len());
        }
    }
}
