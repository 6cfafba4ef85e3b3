//! A logger that asks for figures at each record.

use log::{LevelFilter, Log, Metadata, Record};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls `ask` at each record, except those of `ask` itself.
struct Asking(fn() -> bool);

/// Records at which it asked.
static ASKED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

impl Log for Asking {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &Record<'_>) {
        if !IS_ASKING.replace(true) {
            ASKED.fetch_add(u64::from((self.0)()), Ordering::Relaxed);
            IS_ASKING.set(false);
        }
    }

    fn flush(&self) {}
}

/// Runs `work` on a thread, with a logger that calls `ask` at each record. `ask` returns whether there was something to ask.
///
/// # Panics
/// If `work` does not end, because `ask` waits for a lock under which a record was logged, and if `ask` never asked.
pub fn ask_at_each_record(ask: fn() -> bool, work: impl FnOnce() + Send + 'static) {
    log::set_logger(Box::leak(Box::new(Asking(ask)))).expect("the only one");
    log::set_max_level(LevelFilter::Trace);
    let (done, is_done) = channel();
    let worker = thread::spawn(move || {
        work();
        done.send(()).expect("the test waits");
    });
    is_done.recv_timeout(PATIENCE).expect("no logger waits for a lock under which a record is logged");
    worker.join().expect("no panic");
    assert!(ASKED.load(Ordering::Relaxed) > 0);
}
