//! A logger may ask what it likes: nothing is logged under a lock of the broker's, a pool's or an arena's.

use log::{LevelFilter, Log, Metadata, Record};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use vrampool::broker::{ArrayRequest, Broker, Client};
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, Source};

/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks everybody for everything at each record.
struct Asking;

static ASKED: OnceLock<(Broker<HostDevice>, Vec<Pool<HostDevice>>)> = OnceLock::new();
static RECORDS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

impl Log for Asking {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &Record<'_>) {
        if let Some((broker, pools)) = ASKED.get()
            && !IS_ASKING.replace(true)
        {
            RECORDS.fetch_add(1, Ordering::Relaxed);
            drop(broker.stats());
            for pool in pools {
                drop(pool.stats());
                let _ = pool.arena().map(|arena| (arena.used(), arena.reserved_bytes()));
            }
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
        let stream = device.create_stream().expect("a stream");
        let broker = Broker::builder(&device).build().expect("a broker");
        let sources = [Source::Direct, Source::Arena, Source::Virtual];
        let pools = sources
            .into_iter()
            .filter(|source| *source != Source::Virtual || device.virtual_memory().is_some());
        let pools: Vec<_> = pools
            .map(|source| Pool::builder(&device).source(source).limit(1 << 19).build().expect("a pool"))
            .collect();
        assert!(ASKED.set((broker.clone(), pools.clone())).is_ok());
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
        for pool in &pools {
            let blocks: Vec<_> = (0..16).filter_map(|_| pool.allocate(30_000, &stream).ok()).collect();
            drop(blocks);
            drop(pool.compact(u64::MAX, &stream, |_| {}));
            pool.trim().expect("a trim");
            drop(pool.arena().map(|arena| arena.reset()));
        }
        done.send(()).expect("somebody listens");
    });
    is_done.recv_timeout(PATIENCE).expect("no logger waits for a lock of whoever logs");
    worker.join().expect("no panic");
    assert!(RECORDS.load(Ordering::Relaxed) > 0);
}
