//! The pool's naive twin: what the rules say, in lists, one request at a time, with no thought for speed.

use vrampool::{PoolStats, SizeClasses};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Caps {
    pub(crate) max_cached: u64,
    pub(crate) max_per_bucket: u64,
    pub(crate) limit: u64,
    pub(crate) budget: u64,
}

#[derive(Debug)]
pub(crate) struct Twin {
    pub(crate) classes: SizeClasses,
    pub(crate) caps: Caps,
    /// Classes of idle blocks, oldest release first.
    idle: Vec<u64>,
    /// (class, requested, bytes of the class beyond the request's own class) of live buffers.
    live: Vec<(u64, u64, u64)>,
    /// The most that live bytes were, and the third number of all live buffers.
    expected: u64,
    /// Classes in the order of their last request.
    requests: Vec<u64>,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
    pub(crate) drops: u64,
    /// The most that requested, live, cached and held bytes were.
    peaks: [u64; 4],
}

impl Twin {
    pub(crate) fn new(classes: SizeClasses, caps: Caps) -> Self {
        Self {
            classes,
            caps,
            idle: Vec::new(),
            live: Vec::new(),
            expected: 0,
            requests: Vec::new(),
            hits: 0,
            misses: 0,
            evictions: 0,
            drops: 0,
            peaks: [0; 4],
        }
    }

    fn cached(&self) -> u64 {
        self.idle.iter().sum()
    }

    fn held(&self) -> u64 {
        self.cached() + self.live.iter().map(|&(class, ..)| class).sum::<u64>()
    }

    fn note_peaks(&mut self) {
        let requested = self.live.iter().map(|&(_, bytes, _)| bytes).sum();
        let live = self.live.iter().map(|&(class, ..)| class).sum();
        self.expected = self.expected.max(live);
        let now = [requested, live, self.cached(), self.held()];
        for (peak, now) in self.peaks.iter_mut().zip(now) {
            *peak = now.max(*peak);
        }
    }

    /// The class that a request gets, or `None` when the limit forbids it.
    pub(crate) fn allocate(&mut self, requested: u64) -> Option<u64> {
        let class = self.allocate_unnoted(requested);
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

    fn allocate_unnoted(&mut self, requested: u64) -> Option<u64> {
        let class = self.class_of(requested)?;
        self.requests.retain(|&other| other != class);
        self.requests.push(class);
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
            if let Some(index) = self.idle.iter().position(|&idle| idle == candidate) {
                self.idle.remove(index);
                self.hits += 1;
                self.live.push((candidate, requested, excess));
                self.expected += excess;
                return Some(candidate);
            }
        }
        if self.held() - self.cached() + class > self.caps.limit {
            return None;
        }
        while !self.idle.is_empty() && self.held() + class > self.caps.limit.min(self.caps.budget) {
            let stalest = *self.requests.iter().find(|class| self.idle.contains(class))?;
            let index = self.idle.iter().position(|&idle| idle == stalest)?;
            self.idle.remove(index);
            self.evictions += 1;
        }
        self.misses += 1;
        self.live.push((class, requested, 0));
        Some(class)
    }

    pub(crate) fn release(&mut self, class: u64, requested: u64) {
        let index = self.live.iter().position(|&(of, bytes, _)| (of, bytes) == (class, requested));
        let (_, _, excess) = self.live.remove(index.expect("it is live"));
        self.expected -= excess;
        let in_bucket = self.idle.iter().filter(|&&idle| idle == class).count() as u64;
        if self.cached() + class <= self.caps.max_cached && in_bucket < self.caps.max_per_bucket {
            self.idle.push(class);
        } else {
            self.drops += 1;
        }
        self.note_peaks();
    }

    pub(crate) fn trim_to(&mut self, bytes: u64) {
        while self.cached() > bytes {
            let stalest =
                *self.requests.iter().find(|class| self.idle.contains(class)).expect("it was requested");
            let index = self.idle.iter().position(|&idle| idle == stalest).expect("it is idle");
            self.idle.remove(index);
            self.evictions += 1;
        }
    }

    /// Whether the pool says the same of itself.
    pub(crate) fn compare(&self, stats: &PoolStats) {
        assert_eq!(stats.peak.idle_bytes, self.peaks[2], "peak of cached");
        self.compare_with_magazines(stats);
    }

    /// As [`compare`](Self::compare), where slots that threads leased count as cached.
    pub(crate) fn compare_with_magazines(&self, stats: &PoolStats) {
        assert!(stats.peak.idle_bytes >= self.peaks[2], "peak of cached");
        assert_eq!(
            (stats.served.by_bucket, stats.source.allocations),
            (self.hits, self.misses),
            "hits and misses"
        );
        assert_eq!(stats.idle_bytes, self.cached(), "cached");
        assert_eq!(stats.live_bytes, self.live.iter().map(|&(class, ..)| class).sum::<u64>(), "live");
        assert_eq!(
            stats.requested_bytes,
            self.live.iter().map(|&(_, bytes, _)| bytes).sum::<u64>(),
            "requested"
        );
        assert_eq!(stats.held_bytes, self.held(), "held");
        let peaks = [stats.peak.requested_bytes, stats.peak.live_bytes, stats.peak.held_bytes];
        let [requested, live, _, held] = self.peaks;
        assert_eq!(peaks, [requested, live, held], "peaks of requested, live and held");
        assert_eq!(stats.live_buffers, self.live.len() as u64, "live buffers");
        assert_eq!(stats.released.evicted, self.evictions, "evictions");
        assert_eq!(stats.released.by_byte_cap + stats.released.by_bucket_cap, self.drops, "drops over a cap");
        let idle: u64 = stats.buckets.iter().map(|bucket| bucket.idle_buffers).sum();
        assert_eq!(idle, self.idle.len() as u64, "idle buffers");
    }
}

/// No caps at all.
impl Default for Caps {
    fn default() -> Self {
        Self { max_cached: u64::MAX, max_per_bucket: u64::MAX, limit: u64::MAX, budget: u64::MAX }
    }
}
