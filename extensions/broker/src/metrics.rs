//! The metrics of a broker: its shares, the memory held of them, and its counters.

use crate::handle::Broker;
use crate::state::BrokerCore;
use crate::stats::{BrokerStats, ClientStats, LastFigures};
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

/// The statistics of a broker, for [`publish`](vrampool::telemetry::publish) and for publishers. Its memory is in the
/// metrics of the pool that it was built on, as a child of its name.
///
/// ```
/// # use vrampool::{Pool, host::HostDevice};
/// # use vrampool_broker::{Broker, METRICS};
/// use vrampool::telemetry::{describe, publish};
/// # fn main() -> Result<(), vrampool_broker::BrokerError> {
/// # let pool = Pool::new(&HostDevice::new())?;
/// # let broker = Broker::builder(&pool).build()?;
/// describe(&METRICS);
/// publish(&broker); // from a timer of the application
/// publish(&pool);
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
        // In a forked child there are none.
        let clients = if fork::is_forked() { BTreeMap::new() } else { self.core.clients_by_name() };
        figures(&self.stats(), &clients)
    }

    fn watch(&self) -> impl Watch + 'static {
        WatchedBroker { core: ForkArc::downgrade(&self.core), last: Arc::clone(&self.core.last) }
    }
}

fn figures(stats: &BrokerStats, clients: &BTreeMap<String, ClientStats>) -> OwnerFigures {
    let mut figures = OwnerFigures::of(stats);
    clients.iter().for_each(|(name, client)| figures.add(name, client));
    figures
}

/// A broker that is not kept alive, and its figures once it has ended.
struct WatchedBroker<B: Backend> {
    core: Weak<BrokerCore<B>>,
    /// Set at the drop of its last handle, client or plan. The broker holds the other handle as long as it may set it.
    last: Arc<OnceLock<LastFigures>>,
}

impl<B: Backend> Watch for WatchedBroker<B> {
    fn observe(&mut self) -> Observed {
        if let Some(core) = self.core.upgrade() {
            let broker = Broker { core: ForkArc::from(core) };
            let figures = broker.figures();
            let last = ForkArc::into_inner(broker.core).map(|last| Box::new(last) as Closing);
            return Observed::There(figures, last);
        }
        // In this order: a broker sets its last figures before it drops its handle of them.
        let is_final = Arc::get_mut(&mut self.last).is_some();
        match self.last.get() {
            Some(LastFigures { stats, clients }) => Observed::Ended(Some(figures(stats, clients))),
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
    use vrampool::Pool;
    use vrampool::host::HostDevice;

    #[test]
    fn a_broker_that_ends_leaves_its_final_figures_and_those_of_its_clients() {
        let device = HostDevice::builder().memory_limit(1 << 20).build();
        let pool = Pool::new(&device).expect("a pool");
        let broker = Broker::builder(&pool).build().expect("a broker");
        let weak =
            WatchedBroker { core: ForkArc::downgrade(&broker.core), last: Arc::clone(&broker.core.last) };
        assert!(weak.last.get().is_none());

        let client = broker.register(Client::new("solver").group("solver")).expect("a client");
        client.queue(ArrayRequest::scratch("numbers", [1000], 4).chunk_axis(0)).expect("a request");
        let plan = broker.commit("solver").expect("memory");
        plan.run(|_, _| Ok(())).expect("no fault");
        broker.evict_all().expect("no callback");
        drop(client);
        let ended = ClientStats { chunks: 1, evictions: 1, ..ClientStats::default() };
        let listed = BTreeMap::from([("solver".to_owned(), ended)]);
        assert_eq!(broker.core.clients_by_name(), listed);
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
    fn names_of_clients_that_come_and_go_are_bounded() {
        let pool = Pool::new(&HostDevice::new()).expect("a pool");
        let broker = Broker::builder(&pool).build().expect("a broker");
        for round in 0..10 {
            for number in 0..200 {
                drop(broker.register(Client::new(format!("{round}-{number}"))).expect("a client"));
            }
            let ended = broker.core.clients_by_name().len();
            assert_eq!(ended, if round < 5 { 200 * (round + 1) } else { 200 * (round + 1) - 1025 });
        }
        let _client = broker.register(Client::new("9-0")).expect("a client");
        assert_eq!(broker.core.clients_by_name().len(), 975, "a name has one series");
    }
}
