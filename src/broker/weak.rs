//! A weak handle for publishers, which keeps final statistics.

use super::state::BrokerCore;
use super::{Broker, LastFigures, RegisteredClient};
use std::sync::{Arc, OnceLock, Weak};
use vrampool_backend::fork::ForkArc;
use vrampool_backend::{Backend, fork};

/// A weak handle of a broker, and its figures once it has ended.
#[derive(Debug)]
pub(crate) struct WeakBroker<B: Backend> {
    core: Weak<BrokerCore<B>>,
    last: Arc<OnceLock<LastFigures>>,
}

impl<B: Backend> WeakBroker<B> {
    pub(crate) fn upgrade(&self) -> Option<Broker<B>> {
        self.core.upgrade().map(ForkArc::from).map(|core| Broker { core })
    }

    pub(crate) fn is_there(&self) -> bool {
        self.core.strong_count() > 0
    }

    /// Returns the figures of the ended broker, as of the drop of its last handle, client or plan. `None`
    /// until then, and briefly after [`is_there`](Self::is_there) becomes false.
    pub(crate) fn last(&self) -> Option<&LastFigures> {
        self.last.get()
    }

    /// Whether [`last`](Self::last) cannot change any more.
    pub(crate) fn is_final(&mut self) -> bool {
        // The broker holds the other handle as long as it may write the figures.
        Arc::get_mut(&mut self.last).is_some()
    }

    /// Returns the broker's address, which identifies it.
    pub(crate) fn place(&self) -> usize {
        self.core.as_ptr().addr()
    }
}

impl<B: Backend> Broker<B> {
    pub(crate) fn downgrade(&self) -> WeakBroker<B> {
        WeakBroker { core: ForkArc::downgrade(&self.core), last: Arc::clone(&self.core.last) }
    }

    /// Returns the broker itself, if this is its only handle.
    pub(crate) fn into_last(self) -> Option<impl Send + use<B>> {
        ForkArc::into_inner(self.core)
    }

    /// Returns [`clients`](Self::clients), and clients that deregistered since the broker was first
    /// [downgraded](Self::downgrade), with their final counters. At most the 256 latest are kept.
    pub(crate) fn listed_clients(&self) -> Vec<RegisteredClient> {
        if fork::is_child() { Vec::new() } else { self.core.listed_clients() }
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use crate::broker::{ArrayRequest, Broker, Client, ClientStats};
    use crate::host::HostDevice;

    #[test]
    fn a_broker_that_ends_leaves_its_final_figures_and_those_of_its_clients() {
        let device = HostDevice::builder().memory_limit(1 << 20).build();
        let broker = Broker::builder(&device).build().expect("a broker");
        drop(broker.register(Client::new("before")).expect("a client"));
        let weak = broker.downgrade();
        assert!(weak.last().is_none() && broker.listed_clients().is_empty(), "nobody watched");

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
        assert!(weak.is_there() && weak.last().is_none(), "the plan keeps it");
        plan.run(|_, _| Ok(())).unwrap_err();
        drop(plan);
        assert!(!weak.is_there());
        let last = weak.last().expect("it ended");
        assert_eq!((last.stats.counts.runs, last.stats.counts.commits_refused), (1, 1));
        assert_eq!((last.stats.clients, last.stats.held_bytes), (0, 0));
        assert_eq!(last.clients, listed);
    }

    #[test]
    fn deregistered_clients_are_kept_up_to_a_bound() {
        let device = HostDevice::builder().memory_limit(1 << 20).build();
        let broker = Broker::builder(&device).build().expect("a broker");
        let _weak = broker.downgrade();
        let register = |number: usize| broker.register(Client::new(number.to_string())).expect("a client");
        (0..300).for_each(|number| drop(register(number)));
        let names: Vec<_> = broker.listed_clients().into_iter().map(|client| client.name).collect();
        assert_eq!(names, (44..300).map(|number| number.to_string()).collect::<Vec<_>>(), "the last ones");
    }
}
