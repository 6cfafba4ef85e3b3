//! A logger may ask what it likes: nothing is logged under a lock of a broker or its pool.

use std::sync::OnceLock;
use vrampool::Pool;
use vrampool::host::HostDevice;
use vrampool_broker::{ArrayRequest, Broker, Client};
use vrampool_test_support::ask_at_each_record;

static BROKER: OnceLock<Broker<HostDevice>> = OnceLock::new();

fn ask() -> bool {
    BROKER.get().map(|broker| (broker.stats(), broker.clients(), broker.pool().stats())).is_some()
}

#[test]
fn a_logger_may_ask_the_broker_that_logs() {
    ask_at_each_record(ask, || {
        let device = HostDevice::builder().memory_limit(10 << 20).granularity(4096).build();
        let broker = Broker::builder(&Pool::new(&device).expect("a pool")).build().expect("a broker");
        assert!(BROKER.set(broker.clone()).is_ok());
        // One client's memory is taken back for the other.
        let _clients = ["idle", "needy"].map(|name| {
            let client = broker.register(Client::new(name).group(name)).expect("a client");
            let array = ArrayRequest::scratch("x", [6 << 20], 1).chunk_axis(None);
            assert!(client.queue(array).is_ok(), "{name}");
            let plan = broker.commit(name);
            assert!(plan.is_ok(), "{name}: {plan:?}");
            client
        });
        assert_eq!(broker.stats().counts.evictions, 1);
    });
}
