//! A logger may ask what it likes: nothing is logged under a lock of a broker or its pool.

use log::{LevelFilter, Log, Metadata, Record};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use vrampool::host::HostDevice;
use vrampool_broker::{ArrayRequest, Broker, Client};

/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks the broker at each record.
struct Asking;

static ASKED: OnceLock<Broker<HostDevice>> = OnceLock::new();
static RECORDS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

impl Log for Asking {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &Record<'_>) {
        if let Some(broker) = ASKED.get()
            && !IS_ASKING.replace(true)
        {
            RECORDS.fetch_add(1, Ordering::Relaxed);
            drop((broker.stats(), broker.clients(), broker.pool().stats()));
            IS_ASKING.set(false);
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_logger_may_ask_whoever_logs() {
    log::set_logger(&Asking).expect("the only one");
    log::set_max_level(LevelFilter::Trace);
    let (done, is_done) = channel();
    let worker = thread::spawn(move || {
        let device = HostDevice::builder().memory_limit(10 << 20).granularity(4096).build();
        let broker = Broker::builder(&device).build().expect("a broker");
        assert!(ASKED.set(broker.clone()).is_ok());
        // One client's memory is taken back for the other.
        let _clients = ["idle", "needy"].map(|name| {
            let client = broker.register(Client::new(name).group(name)).expect("a client");
            let array = ArrayRequest::scratch("x", [6 << 20], 1).unchunkable();
            assert!(client.queue(array).is_ok(), "{name}");
            let plan = broker.commit(name);
            assert!(plan.is_ok(), "{name}: {plan:?}");
            client
        });
        assert_eq!(broker.stats().counts.evictions, 1);
        done.send(()).expect("somebody listens");
    });
    is_done.recv_timeout(PATIENCE).expect("no logger waits for a lock of whoever logs");
    worker.join().expect("no panic");
    assert!(RECORDS.load(Ordering::Relaxed) > 0);
}
