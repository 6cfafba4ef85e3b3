//! The metrics of a sleeper: its memory by tag, and wakes that fail.
#![cfg(all(feature = "metrics", feature = "host"))]

use vrampool::host::HostDevice;
use vrampool::telemetry::Owner;
use vrampool::{Backend, Pool, SizeClasses};
use vrampool_sleep::{METRICS, Sleeper, Wake};
use vrampool_test_support::has_virtual_memory;

const MIB: u64 = 1 << 20;

#[test]
fn names_are_of_sleepers_and_each_stands_once() {
    let mut names: Vec<_> = METRICS.iter().map(|figure| figure.metric).collect();
    assert!(names.iter().all(|name| name.starts_with("vrampool_sleep_")), "{names:?}");
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn sleeps_and_wakes_are_counted_and_so_are_those_that_fail() {
    let device = HostDevice::builder().memory_limit(64 * MIB).build();
    if !has_virtual_memory(&device) {
        return;
    }
    let stream = device.create_stream().expect("a stream");
    let sleeper = Sleeper::builder(&device).name("server").build().expect("a sleeper");
    let _weights = sleeper.allocate_tagged(32 * MIB, "weights", &stream).expect("memory");
    let _ = sleeper.sleep(&["weights"]).expect("a sleep");
    let pool = Pool::builder(&device).size_classes(SizeClasses::EXACT).build().expect("a pool");
    let taken = pool.allocate(48 * MIB, &stream).expect("memory");
    assert!(sleeper.wake_up(Wake::All).is_err());
    let counts = sleeper.counts();
    assert_eq!((counts.sleeps, counts.failed_sleeps, counts.wakes, counts.failed_wakes), (1, 0, 0, 1));
    drop(taken);
    pool.trim().expect("a trim");
    let _ = sleeper.wake_up(Wake::All).expect("a wake");
    let counts = sleeper.counts();
    assert_eq!((counts.sleeps, counts.failed_sleeps, counts.wakes, counts.failed_wakes), (1, 0, 1, 1));
    assert!(!counts.time.is_zero());
    assert_eq!((Owner::name(&sleeper), Sleeper::<HostDevice>::LABEL), ("server", "sleeper"));
    let figures = format!("{:?}", sleeper.figures());
    assert!(figures.contains("vrampool_sleep_tag_asleep") && figures.contains("weights"), "{figures}");
}
