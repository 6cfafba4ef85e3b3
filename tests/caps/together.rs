//! Pools below one pool: its caps hold for all of them together.

use crate::operations::{Scene, bytes, scene};
use crate::twin::Caps;
use crate::{Device, KIB};
use proptest::prelude::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use vrampool::{Backend, Buffer, Pool, SizeClasses, Source};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// As the device sees it, from below: what it gave is at most what threads have or are asking for, and one cap.
    #[test]
    fn five_pools_keep_no_more_than_one_at_any_instant(
        max_cached in 0..300 * KIB,
        magazine_bytes in prop::sample::select(&[0, 70 * KIB, 1 << 30][..]),
        lists in prop::collection::vec(prop::collection::vec((any::<usize>(), bytes(), any::<usize>()), 20..100), 2..5),
    ) {
        let caps = Caps { max_cached, ..Caps::default() };
        let Scene { device, pools, .. } = scene(SizeClasses::Fixed, caps, magazine_bytes, 5);
        let (begun, ended, is_done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let all_freed = Barrier::new(lists.len());
        let worker = |list: &[(usize, u64, usize)]| {
            let stream = device.create_stream().expect("a stream");
            let mut mine: Vec<Buffer<Device>> = Vec::new();
            let release = |buffer: Buffer<Device>| {
                let class = buffer.capacity();
                drop(buffer);
                ended.fetch_add(class, SeqCst);
            };
            for &(at, bytes, which) in list {
                let pool = &pools[at % pools.len()];
                begun.fetch_add(pool.class_of(bytes).expect("any"), SeqCst);
                mine.push(pool.allocate(bytes, &stream).expect("no limit"));
                if mine.len() > 8 {
                    release(mine.swap_remove(which % 8));
                }
            }
            mine.into_iter().for_each(release);
            all_freed.wait();
            assert!(device.taken() <= max_cached, "nothing is live");
            all_freed.wait();
        };
        thread::scope(|scope| {
            let observer = scope.spawn(|| {
                while !is_done.load(SeqCst) {
                    // In this order: the difference is never less than what was in use when the device was asked.
                    let ended = ended.load(SeqCst);
                    let taken = device.taken();
                    assert!(taken <= begun.load(SeqCst) - ended + max_cached, "{taken} taken");
                }
            });
            let workers: Vec<_> = lists.iter().map(|list| scope.spawn(|| worker(list))).collect();
            let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            is_done.store(true, SeqCst);
            observer.join().expect("every look was right");
            outcomes.into_iter().for_each(|outcome| outcome.expect("no thread failed"));
        });
        drop(pools);
        prop_assert_eq!(device.taken(), 0);
    }
}

/// Also over virtual memory: idle memory of one pool is released before another one exceeds the budget.
#[test]
fn a_budget_holds_for_all_virtual_pools_together() {
    let Scene { device, streams, .. } = scene(SizeClasses::Fixed, Caps::default(), 0, 1);
    let stream = &streams[0];
    let builder = || Pool::builder(&device).source(Source::Virtual).magazine_bytes(0);
    let Ok(root) = builder().budget(256 * KIB).build() else { return };
    let within = root.child("child").build().expect("a pool");
    drop(within.allocate(128 * KIB, stream).expect("memory"));
    assert_eq!(within.stats().idle_bytes, 128 * KIB);
    let _live = root.allocate(256 * KIB, stream).expect("memory");
    assert_eq!(within.stats().idle_bytes, 0);
}
