//! Counts of a pool that continue those of an earlier pool of its name.
//!
//! Each group is taken apart without `..`: a new field does not compile until it is either added or left as it
//! is now.

use super::PoolStats;
use super::groups::{BucketStats, SourceStats, VirtualMemoryStats, add};

impl PoolStats {
    /// Returns these statistics with counts that continue those of an earlier pool. Sizes, peaks and caps are
    /// this pool's alone.
    pub(crate) fn counting_on(&self, before: &Self) -> Self {
        let mut sum = self.clone();
        let Self {
            hits,
            misses,
            live_buffers: _,
            requested_bytes: _,
            live_bytes: _,
            idle_bytes: _,
            held_bytes: _,
            stream_waits,
            source,
            virtual_memory,
            peak: _,
            caps: _,
            released,
            failed,
            rungs,
            buckets,
        } = before;
        add(&mut sum.hits, *hits);
        add(&mut sum.misses, *misses);
        add(&mut sum.stream_waits, *stream_waits);
        sum.source.count_on(source);
        sum.virtual_memory.count_on(virtual_memory);
        sum.released += *released;
        sum.failed += *failed;
        for (count, more) in sum.rungs.iter_mut().zip(rungs) {
            add(count, *more);
        }
        for earlier in buckets {
            match sum.buckets.iter_mut().find(|bucket| bucket.class == earlier.class) {
                Some(bucket) => bucket.count_on(earlier),
                None => {
                    let mut bucket = BucketStats::new(earlier.class);
                    bucket.count_on(earlier);
                    sum.buckets.push(bucket);
                }
            }
        }
        sum
    }
}

impl SourceStats {
    fn count_on(&mut self, before: &Self) {
        let Self {
            kind: _,
            served_by_arena,
            served_by_driver,
            allocations,
            frees,
            allocated_bytes,
            in_transit_bytes: _,
            reserved_bytes: _,
        } = before;
        add(&mut self.served_by_arena, *served_by_arena);
        add(&mut self.served_by_driver, *served_by_driver);
        add(&mut self.allocations, *allocations);
        add(&mut self.frees, *frees);
        add(&mut self.allocated_bytes, *allocated_bytes);
    }
}

impl VirtualMemoryStats {
    fn count_on(&mut self, before: &Self) {
        let Self { calls, time, mappings: _, stitched_ranges: _, address_bytes: _ } = before;
        add(&mut self.calls, *calls);
        self.time = self.time.saturating_add(*time);
    }
}

impl BucketStats {
    fn count_on(&mut self, before: &Self) {
        let Self { class: _, hits, misses, idle_buffers: _, idle_bytes: _ } = before;
        add(&mut self.hits, *hits);
        add(&mut self.misses, *misses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::oom_rung::Rung;
    use crate::cache::stats::groups::{Caps, Failures, Peaks, Releases};
    use crate::source::Source;
    use std::time::Duration;

    /// Statistics with another number in each field, `factor` times its place; without `..`, as a new field
    /// must come here too.
    fn numbered(factor: u64) -> PoolStats {
        let mut place = 0;
        let mut next = || {
            place += 1;
            factor * place
        };
        PoolStats {
            hits: next(),
            misses: next(),
            live_buffers: next(),
            requested_bytes: next(),
            live_bytes: next(),
            idle_bytes: next(),
            held_bytes: next(),
            stream_waits: next(),
            source: SourceStats {
                kind: Source::Virtual,
                served_by_arena: next(),
                served_by_driver: next(),
                allocations: next(),
                frees: next(),
                allocated_bytes: next(),
                in_transit_bytes: next(),
                reserved_bytes: next(),
            },
            virtual_memory: VirtualMemoryStats {
                calls: next(),
                time: Duration::from_nanos(next()),
                mappings: next(),
                stitched_ranges: next(),
                address_bytes: next(),
            },
            peak: Peaks {
                requested_bytes: next(),
                live_bytes: next(),
                idle_bytes: next(),
                held_bytes: next(),
                reserved_bytes: next(),
                needed_bytes: next(),
            },
            caps: Caps {
                max_cached_bytes: Some(next()),
                max_buffers_per_bucket: Some(next()),
                limit: Some(next()),
                budget: Some(next()),
            },
            released: Releases { by_byte_cap: next(), by_bucket_cap: next(), evicted: next() },
            failed: Failures { by_limit: next(), by_device: next(), by_backend: next(), invalid: next() },
            rungs: [(); Rung::ALL.len()].map(|()| next()),
            buckets: vec![BucketStats {
                class: 1024,
                hits: next(),
                misses: next(),
                idle_buffers: next(),
                idle_bytes: next(),
            }],
        }
    }

    #[test]
    fn every_count_continues_and_nothing_else_does() {
        let (now, before) = (numbered(1), numbered(100));
        let sum = now.counting_on(&before);
        let mut expected = numbered(101);
        // What is true at one time is this pool's.
        expected.live_buffers = now.live_buffers;
        expected.requested_bytes = now.requested_bytes;
        expected.live_bytes = now.live_bytes;
        expected.idle_bytes = now.idle_bytes;
        expected.held_bytes = now.held_bytes;
        expected.source.in_transit_bytes = now.source.in_transit_bytes;
        expected.source.reserved_bytes = now.source.reserved_bytes;
        expected.virtual_memory.mappings = now.virtual_memory.mappings;
        expected.virtual_memory.stitched_ranges = now.virtual_memory.stitched_ranges;
        expected.virtual_memory.address_bytes = now.virtual_memory.address_bytes;
        (expected.peak, expected.caps) = (now.peak, now.caps);
        expected.buckets[0].idle_buffers = now.buckets[0].idle_buffers;
        expected.buckets[0].idle_bytes = now.buckets[0].idle_bytes;
        assert_eq!(sum, expected);
    }

    #[test]
    fn a_class_of_the_earlier_pool_alone_keeps_its_counts() {
        let (now, before) = (PoolStats::default(), numbered(1));
        let [bucket] = now.counting_on(&before).buckets[..] else { panic!("one bucket") };
        let earlier = before.buckets[0];
        assert_eq!((bucket.class, bucket.hits, bucket.misses), (1024, earlier.hits, earlier.misses));
        assert_eq!((bucket.idle_buffers, bucket.idle_bytes), (0, 0));
    }
}
