//! A logger may ask what it likes: nothing is logged under a lock of a pool or an arena.

use log::{LevelFilter, Log, Metadata, Record};
use std::sync::OnceLock;
use std::time::Duration;
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, Source};
use vrampool_test_support::{ask_at_each_record, is_inside, passed, test_again};

static POOLS: OnceLock<Vec<Pool<HostDevice>>> = OnceLock::new();

/// Asks all pools for everything.
fn ask() -> bool {
    let Some(pools) = POOLS.get() else { return false };
    for pool in pools {
        drop(pool.stats());
        let _ = pool.arena().map(|arena| (arena.used(), arena.reserved_bytes()));
    }
    true
}

#[test]
fn a_logger_may_ask_the_pool_that_logs() {
    ask_at_each_record(ask, || {
        let device = HostDevice::builder().memory_limit(10 << 20).granularity(4096).build();
        let stream = device.create_stream().expect("a stream");
        let sources = [Source::Direct, Source::Arena, Source::Virtual];
        let pools = sources
            .into_iter()
            .filter(|source| *source != Source::Virtual || device.virtual_memory().is_some());
        let pools: Vec<_> = pools
            .map(|source| Pool::builder(&device).source(source).limit(1 << 19).build().expect("a pool"))
            .collect();
        assert!(POOLS.set(pools.clone()).is_ok());
        for pool in &pools {
            let blocks: Vec<_> = (0..16).filter_map(|_| pool.allocate(30_000, &stream).ok()).collect();
            drop(blocks);
            drop(pool.compact(u64::MAX, &stream, |_| {}));
            pool.trim().expect("a trim");
        }
    });
}

/// Prints each record.
struct Printing;

impl Log for Printing {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        println!("{}: {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// A name with a mistake in it would have no effect, in silence. Runs again in a process that has such a variable.
#[test]
fn a_variable_that_nothing_reads_is_a_warning_once() {
    const NAME: &str = "VRAMPOOL_LIMITGB";
    if is_inside() {
        log::set_logger(&Printing).expect("the only one");
        log::set_max_level(LevelFilter::Warn);
        for _ in 0..2 {
            let device = HostDevice::new();
            let builder = Pool::builder(&device).from_environment().expect("no value is wrong");
            assert_eq!(builder.build().expect("a pool").limit(), None);
        }
        return;
    }
    let text = passed(test_again("a_variable_that_nothing_reads_is_a_warning_once").env(NAME, "1"));
    let warnings: Vec<_> = text.lines().filter(|line| line.contains(NAME)).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("VRAMPOOL_LIMIT_GB, "), "{text}");
}

/// A flood of refused requests is one record, with the figures of the first. Runs again in a process with a logger.
#[test]
fn refused_requests_are_logged_once_a_minute_with_their_figures() {
    if is_inside() {
        log::set_logger(&Printing).expect("the only one");
        log::set_max_level(LevelFilter::Warn);
        let device = HostDevice::new();
        let stream = device.create_stream().expect("a stream");
        for name in ["one", "two"] {
            let pool = Pool::builder(&device).name(name).limit(1 << 20).build().expect("a pool");
            for _ in 0..10 {
                pool.allocate(2 << 20, &stream).expect_err("more than the limit");
                pool.allocate_timeout(2 << 20, &stream, Duration::ZERO).expect_err("more than the limit");
            }
        }
        return;
    }
    let text = passed(&mut test_again("refused_requests_are_logged_once_a_minute_with_their_figures"));
    for pool in ["one", "two"] {
        let record =
            format!("WARN: pool {pool}: a request was refused: out of memory: 2097152 bytes were requested");
        assert_eq!(text.matches(&record).count(), 1, "{text}");
    }
    assert_eq!(text.matches("WARN: ").count(), 2, "{text}");
}
