//! The metrics of memory that sleeps: by tag, and wakes that fail.
#![cfg(all(feature = "metrics", feature = "host"))]

use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, SizeClasses, Source};
use vrampool_sleep::{METRICS, Offload, SleepArena, SleepCounts, figures_of};
use vrampool_test_support::has_virtual_memory;

const MIB: u64 = 1 << 20;

#[test]
fn names_are_of_sleep_and_each_stands_once() {
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
    let root = Pool::builder(&device).source(Source::Virtual).addresses_stay(true).build().expect("a pool");
    let tag = root.child("weights").build().expect("a pool");
    let arena = SleepArena::new(tag.arena().expect("virtual").clone());
    let _weights = tag.allocate(32 * MIB, &stream).expect("memory");
    let mut counts = SleepCounts::default();
    counts.count_sleep(&arena.sleep(Offload::Pinned));
    let pool = Pool::builder(&device).size_classes(SizeClasses::EXACT).build().expect("a pool");
    let taken = pool.allocate(48 * MIB, &stream).expect("memory");
    counts.count_wake(&arena.wake());
    assert_eq!((counts.sleeps, counts.failed_sleeps, counts.wakes, counts.failed_wakes), (1, 0, 0, 1));
    drop(taken);
    pool.trim().expect("a trim");
    counts.count_wake(&arena.wake());
    assert_eq!((counts.sleeps, counts.failed_sleeps, counts.wakes, counts.failed_wakes), (1, 0, 1, 1));
    assert!(!counts.time.is_zero());
    let figures = format!("{:?}", figures_of([("weights", &arena)], &counts));
    assert!(figures.contains("vrampool_sleep_tag_asleep") && figures.contains("weights"), "{figures}");
}
