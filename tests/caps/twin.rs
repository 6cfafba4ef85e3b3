//! The pool's naive twin: what the rules say, in lists, one request at a time, with no thought for speed.

use crate::Device;
use vrampool::{Pool, PoolStats, SizeClasses};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Caps {
    pub(crate) max_cached: u64,
    pub(crate) max_per_bucket: u64,
    pub(crate) limit: u64,
    pub(crate) budget: u64,
}

#[derive(Debug)]
pub(crate) struct Twin {
    classes: SizeClasses,
    caps: Caps,
    /// The first, and pools below it.
    pools: Vec<Own>,
    /// (pool, class, requested, bytes of the class beyond the request's own class) of live buffers.
    live: Vec<(usize, u64, u64, u64)>,
    /// The most that live bytes were, and the last number of all live buffers.
    expected: u64,
    hits: u64,
    misses: u64,
    evictions: u64,
    drops: u64,
    /// The most that requested, live, cached and held bytes were.
    peaks: [u64; 4],
}

/// What one pool has idle.
#[derive(Debug, Clone, Default)]
struct Own {
    /// Classes of idle blocks, oldest release first.
    idle: Vec<u64>,
    /// Classes in the order of their last request.
    requests: Vec<u64>,
}

impl Own {
    fn cached(&self) -> u64 {
        self.idle.iter().sum()
    }
}

impl Twin {
    pub(crate) fn new(classes: SizeClasses, caps: Caps, count: usize) -> Self {
        Self {
            classes,
            caps,
            pools: vec![Own::default(); count],
            live: Vec::new(),
            expected: 0,
            hits: 0,
            misses: 0,
            evictions: 0,
            drops: 0,
            peaks: [0; 4],
        }
    }

    fn cached(&self) -> u64 {
        self.pools.iter().map(Own::cached).sum()
    }

    fn live(&self) -> u64 {
        self.live.iter().map(|&(_, class, ..)| class).sum()
    }

    fn requested(&self) -> u64 {
        self.live.iter().map(|&(_, _, bytes, _)| bytes).sum()
    }

    fn held(&self) -> u64 {
        self.cached() + self.live()
    }

    fn note_peaks(&mut self) {
        self.expected = self.expected.max(self.live());
        let now = [self.requested(), self.live(), self.cached(), self.held()];
        for (peak, now) in self.peaks.iter_mut().zip(now) {
            *peak = now.max(*peak);
        }
    }

    /// The class that a request of a pool gets, or `None` when the limit forbids it.
    pub(crate) fn allocate(&mut self, at: usize, requested: u64) -> Option<u64> {
        let class = self.allocate_unnoted(at, requested);
        self.note_peaks();
        class
    }

    /// The class of a request, clamped to the limit while the request fits. No scene has both a limit and magazines.
    fn class_of(&self, requested: u64) -> Option<u64> {
        let class = self.classes.round(requested)?;
        let limit = self.caps.limit;
        let is_clamped = class > limit && requested.max(1) <= limit;
        let aligned = limit / 512 * 512;
        Some(if is_clamped { if aligned >= requested.max(1) { aligned } else { limit } } else { class })
    }

    fn allocate_unnoted(&mut self, at: usize, requested: u64) -> Option<u64> {
        let class = self.class_of(requested)?;
        let own = &mut self.pools[at];
        own.requests.retain(|&other| other != class);
        own.requests.push(class);
        let mut candidates = vec![class];
        if let SizeClasses::Geometric { from, .. } = self.classes
            && class > from
        {
            let next = self.classes.round(class + 1)?;
            candidates.extend([next, self.classes.round(next + 1)?]);
        }
        for candidate in candidates {
            let excess = candidate - class;
            if excess > 0 && self.expected.saturating_add(excess) > self.caps.limit {
                break;
            }
            if let Some(index) = own.idle.iter().position(|&idle| idle == candidate) {
                own.idle.remove(index);
                self.hits += 1;
                self.live.push((at, candidate, requested, excess));
                self.expected += excess;
                return Some(candidate);
            }
        }
        if self.live() + class > self.caps.limit {
            return None;
        }
        let over = |twin: &Self| (twin.held() + class).saturating_sub(twin.caps.limit.min(twin.caps.budget));
        // First from other pools, what this pool's idle memory does not cover; then the rest from this pool.
        let mut lacking = over(self).saturating_sub(self.pools[at].cached());
        for other in (0..self.pools.len()).filter(|&other| other != at) {
            lacking = lacking.saturating_sub(self.evict(other, lacking));
        }
        self.evict(at, over(self));
        self.misses += 1;
        self.live.push((at, class, requested, 0));
        Some(class)
    }

    /// Releases idle blocks of the classes that were requested longest ago, until at least so many bytes left or
    /// none is idle. Returns the bytes.
    fn evict(&mut self, at: usize, bytes: u64) -> u64 {
        let (own, mut evicted) = (&mut self.pools[at], 0);
        while evicted < bytes && !own.idle.is_empty() {
            let stalest =
                *own.requests.iter().find(|class| own.idle.contains(class)).expect("requested once");
            own.idle.remove(own.idle.iter().position(|&idle| idle == stalest).expect("it is idle"));
            evicted += stalest;
            self.evictions += 1;
        }
        evicted
    }

    pub(crate) fn release(&mut self, at: usize, class: u64, requested: u64) {
        let index =
            self.live.iter().position(|&(of, live, bytes, _)| (of, live, bytes) == (at, class, requested));
        let (.., excess) = self.live.remove(index.expect("it is live"));
        self.expected -= excess;
        let in_bucket = self.pools[at].idle.iter().filter(|&&idle| idle == class).count() as u64;
        if self.cached() + class <= self.caps.max_cached && in_bucket < self.caps.max_per_bucket {
            self.pools[at].idle.push(class);
        } else {
            self.drops += 1;
        }
        self.note_peaks();
    }

    pub(crate) fn trim_to(&mut self, at: usize, mut bytes: u64) {
        let is_below = |mut other: usize| {
            while other > at {
                other /= 2;
            }
            other == at
        };
        for other in (0..self.pools.len()).filter(|&other| other != at && is_below(other)).chain([at]) {
            self.evict(other, self.pools[other].cached().saturating_sub(bytes));
            bytes = bytes.saturating_sub(self.pools[other].cached());
        }
    }

    /// Whether each pool says so of itself.
    pub(crate) fn compare_each(&self, pools: &[Pool<Device>]) {
        for (at, (pool, own)) in pools.iter().zip(&self.pools).enumerate() {
            let stats = pool.own_stats();
            let live: u64 = self.live.iter().filter(|&&(of, ..)| of == at).map(|&(_, class, ..)| class).sum();
            assert_eq!((stats.live_bytes, stats.idle_bytes), (live, own.cached()));
        }
    }

    /// Whether the first pool says the same of all. Slots that threads leased count as cached, and pools below the
    /// first have their peaks at other moments.
    pub(crate) fn compare(&self, stats: &PoolStats, has_magazines: bool) {
        let peak = &stats.peak;
        let peaks = [peak.requested_bytes, peak.live_bytes, peak.idle_bytes, peak.held_bytes];
        for (nth, (peak, expected)) in peaks.into_iter().zip(self.peaks).enumerate() {
            let is_exact = self.pools.len() == 1 && (nth != 2 || !has_magazines);
            assert!(peak == expected || peak > expected && !is_exact, "{nth}: {peak}, {expected}");
        }
        assert_eq!(
            (stats.served.by_bucket, stats.source.allocations),
            (self.hits, self.misses),
            "hits and misses"
        );
        assert_eq!(stats.idle_bytes, self.cached(), "cached");
        assert_eq!(
            (stats.live_bytes, stats.requested_bytes),
            (self.live(), self.requested()),
            "live, requested"
        );
        assert_eq!(stats.held_bytes, self.held(), "held");
        assert_eq!(stats.live_buffers, self.live.len() as u64, "live buffers");
        assert_eq!(stats.released.evicted, self.evictions, "evictions");
        assert_eq!(stats.released.by_byte_cap + stats.released.by_bucket_cap, self.drops, "drops over a cap");
        let idle: u64 = stats.buckets.iter().map(|bucket| bucket.idle_buffers).sum();
        assert_eq!(idle, self.pools.iter().map(|own| own.idle.len() as u64).sum::<u64>(), "idle buffers");
    }
}

/// No caps at all.
impl Default for Caps {
    fn default() -> Self {
        Self { max_cached: u64::MAX, max_per_bucket: u64::MAX, limit: u64::MAX, budget: u64::MAX }
    }
}
