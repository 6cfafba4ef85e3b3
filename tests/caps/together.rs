//! Pools below one pool: its caps hold for all of them together.

use crate::operations::{Operation, bytes, caps, operation};
use crate::twin::Caps;
use crate::{Device, KIB};
use proptest::prelude::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use vrampool::host::HostDevice;
use vrampool::{Backend, Buffer, Pool, SizeClasses, Source};
use vrampool_test_support::AuditDevice;

/// A model of a pool and the pools below it, in lists, one request at a time.
struct Twin {
    caps: Caps,
    pools: Vec<Own>,
}

/// The state of one pool.
#[derive(Clone, Default)]
struct Own {
    live: u64,
    /// Classes of idle blocks, oldest release first.
    idle: Vec<u64>,
    /// Classes in the order of their last request.
    requests: Vec<u64>,
}

impl Own {
    fn cached(&self) -> u64 {
        self.idle.iter().sum()
    }

    /// Releases idle blocks of the classes that were requested longest ago, until at least so many bytes left or
    /// none is idle. Returns the bytes.
    fn evict(&mut self, bytes: u64) -> u64 {
        let mut evicted = 0;
        while evicted < bytes && !self.idle.is_empty() {
            let stalest =
                *self.requests.iter().find(|class| self.idle.contains(class)).expect("requested once");
            self.idle.remove(self.idle.iter().position(|&idle| idle == stalest).expect("it is idle"));
            evicted += stalest;
        }
        evicted
    }
}

impl Twin {
    fn cached(&self) -> u64 {
        self.pools.iter().map(Own::cached).sum()
    }

    fn live(&self) -> u64 {
        self.pools.iter().map(|own| own.live).sum()
    }

    fn allocate(&mut self, at: usize, class: u64) -> bool {
        let (caps, live) = (self.caps, self.live());
        let own = &mut self.pools[at];
        own.requests.retain(|&other| other != class);
        own.requests.push(class);
        let hit = own.idle.iter().rposition(|&idle| idle == class);
        if let Some(index) = hit {
            own.idle.remove(index);
        } else if live + class > caps.limit {
            return false;
        } else {
            let over =
                |twin: &Self| (live + twin.cached() + class).saturating_sub(caps.limit.min(caps.budget));
            // First from other pools, what this pool's idle memory does not cover; then the rest from this pool.
            let mut lacking = over(self).saturating_sub(self.pools[at].cached());
            for (other, own) in self.pools.iter_mut().enumerate() {
                if other != at {
                    lacking = lacking.saturating_sub(own.evict(lacking));
                }
            }
            let over = over(self);
            self.pools[at].evict(over);
        }
        self.pools[at].live += class;
        true
    }

    fn release(&mut self, at: usize, class: u64) {
        let is_kept = self.cached() + class <= self.caps.max_cached;
        let own = &mut self.pools[at];
        own.live -= class;
        let in_bucket = own.idle.iter().filter(|&&idle| idle == class).count() as u64;
        if is_kept && in_bucket < self.caps.max_per_bucket {
            own.idle.push(class);
        }
    }
}

fn pools(device: &Device, caps: Caps, count: usize, magazine_bytes: u64) -> Vec<Pool<Device>> {
    let builder = || {
        let builder = Pool::builder(device).size_classes(SizeClasses::Fixed).magazine_bytes(magazine_bytes);
        builder.max_buffers_per_bucket(caps.max_per_bucket)
    };
    let first = builder().max_cached_bytes(caps.max_cached).limit(caps.limit).budget(caps.budget);
    let mut pools = vec![first.build().expect("a pool")];
    // Below any of them: the caps are those of the first.
    (1..count).for_each(|at| pools.push(pools[at / 2].child("child").build().expect("a pool")));
    pools
}

fn device() -> Device {
    AuditDevice::new(HostDevice::builder().memory_limit(1 << 40).build())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn pools_and_twin_agree(
        caps in caps(),
        count in 1..5usize,
        operations in prop::collection::vec((any::<usize>(), operation()), 0..200),
    ) {
        let device = device();
        let stream = device.create_stream().expect("a stream");
        let pools = pools(&device, caps, count, 0);
        let mut twin = Twin { caps, pools: vec![Own::default(); count] };
        let mut live: Vec<(usize, Buffer<Device>)> = Vec::new();
        for (at, operation) in operations {
            let at = at % count;
            match operation {
                Operation::Allocate { bytes } => {
                    let class = pools[at].class_of(bytes).expect("the device allocates any");
                    let got = pools[at].allocate(bytes, &stream);
                    prop_assert_eq!(got.is_ok(), twin.allocate(at, class), "{:?}", got);
                    live.extend(got.ok().map(|buffer| (at, buffer)));
                }
                Operation::Drop { which } if !live.is_empty() => {
                    let (at, buffer) = live.swap_remove(which % live.len());
                    twin.release(at, buffer.capacity());
                    drop(buffer);
                }
                Operation::Trim { to } => {
                    pools[at].trim_to(to).expect("a trim");
                    let mut left = to;
                    let is_below = |mut other: usize| {
                        while other > at {
                            other /= 2;
                        }
                        other == at
                    };
                    for other in (0..count).filter(|&other| other != at && is_below(other)).chain([at]) {
                        let own = &mut twin.pools[other];
                        own.evict(own.cached().saturating_sub(left));
                        left = left.saturating_sub(own.cached());
                    }
                }
                _ => {}
            }
            for (pool, own) in pools.iter().zip(&twin.pools) {
                let stats = pool.own_stats();
                prop_assert_eq!((stats.live_bytes, stats.idle_bytes), (own.live, own.cached()));
            }
            let all = pools[0].stats();
            prop_assert_eq!((all.live_bytes, all.idle_bytes), (twin.live(), twin.cached()));
            prop_assert_eq!(device.taken(), twin.live() + twin.cached());
        }
        prop_assert!(device.peak() <= caps.limit && twin.cached() <= caps.max_cached);
    }

    /// As the device sees it, from below: what it gave is at most what threads have or are asking for, and one cap.
    #[test]
    fn five_pools_keep_no_more_than_one_at_any_instant(
        max_cached in 0..300 * KIB,
        magazine_bytes in prop::sample::select(&[0, 70 * KIB, 1 << 30][..]),
        lists in prop::collection::vec(prop::collection::vec((any::<usize>(), bytes(), any::<usize>()), 20..100), 2..5),
    ) {
        let device = device();
        let pools = pools(&device, Caps { max_cached, ..Caps::default() }, 5, magazine_bytes);
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
    let device = device();
    let [stream] = vrampool_test_support::streams(&device);
    let builder = || Pool::builder(&device).source(Source::Virtual).magazine_bytes(0);
    let Ok(root) = builder().budget(256 * KIB).build() else { return };
    let within = root.child("child").build().expect("a pool");
    drop(within.allocate(128 * KIB, &stream).expect("memory"));
    assert_eq!(within.stats().idle_bytes, 128 * KIB);
    let _live = root.allocate(256 * KIB, &stream).expect("memory");
    assert_eq!(within.stats().idle_bytes, 0);
}
