//! The result of a run as a JSON object and as tables.

use super::tally::Outcome;
use serde::Serialize;
use std::time::Duration;
use vrampool::{Backend, Pool, PoolStats};
use vrampool_cli::table::{human, table};

/// A finished run. Its fields are the JSON object's keys; sizes in bytes, rates and accuracy 0 to 1.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    backend: &'static str,
    device: String,
    source: String,
    /// Bytes that the new pool had reserved.
    initial_bytes: u64,
    steps: u64,
    test_accuracy: f32,
    served_by_bucket: u64,
    served_by_arena: u64,
    served_by_driver: u64,
    hit_rate: f64,
    bucket_hit_rate: f64,
    /// `null` when there was no second epoch.
    hit_rate_after_first_epoch: Option<f64>,
    bucket_hit_rate_after_first_epoch: Option<f64>,
    /// Allocations of the device by steps of learning after the first epoch; likewise.
    step_allocations_after_first_epoch: Option<u64>,
    idle_bytes: u64,
    peak_requested: u64,
    peak_live: u64,
    peak_held: u64,
    max_cached_bytes: Option<u64>,
    peak_idle: u64,
    peak_needed: u64,
    reuse_waits: u64,
    overlap: String,
    wall_s: f64,
    #[serde(skip)]
    stats: PoolStats,
}

impl Report {
    /// `first_epoch`: the pool's statistics when the first of several epochs was over. `step_allocations`:
    /// what steps took from the device since.
    pub(crate) fn new<B: Backend>(
        pool: &Pool<B>,
        initial_bytes: u64,
        first_epoch: Option<&PoolStats>,
        step_allocations: u64,
        steps: u64,
        test: Outcome,
        wall: Duration,
    ) -> Self {
        let (properties, stats) = (pool.device().properties(), pool.stats());
        let later = first_epoch.map(|first| stats.served.since(&first.served));
        Self {
            backend: properties.backend,
            device: properties.name.clone(),
            source: pool.source().to_string(),
            initial_bytes,
            steps,
            test_accuracy: test.accuracy,
            served_by_bucket: stats.served.by_bucket,
            served_by_arena: stats.served.by_arena,
            served_by_driver: stats.served.by_driver,
            hit_rate: stats.hit_rate(),
            bucket_hit_rate: stats.bucket_hit_rate(),
            hit_rate_after_first_epoch: later.map(|served| served.hit_rate()),
            bucket_hit_rate_after_first_epoch: later.map(|served| served.bucket_hit_rate()),
            step_allocations_after_first_epoch: first_epoch.map(|_| step_allocations),
            idle_bytes: stats.idle_bytes,
            peak_requested: stats.peak.requested_bytes,
            peak_live: stats.peak.live_bytes,
            peak_held: stats.peak.held_bytes,
            max_cached_bytes: stats.caps.max_cached_bytes,
            peak_idle: stats.peak.idle_bytes,
            peak_needed: stats.peak.needed_bytes,
            reuse_waits: stats.reuse_waits,
            overlap: stats.caps.overlap.to_string(),
            wall_s: wall.as_secs_f64(),
            stats,
        }
    }

    /// Tables: the run, the pool's bytes by kind, its requests by bucket.
    pub(crate) fn tables(&self) -> String {
        [self.run(), self.bytes(), self.buckets()].join("\n\n")
    }

    fn run(&self) -> String {
        let stats = &self.stats;
        let not_kept = stats.released.by_byte_cap + stats.released.by_bucket_cap;
        let later = |rate: Option<f64>| rate.map_or("no second epoch".into(), percent);
        let mut rows = vec![
            ("device", format!("{} ({})", self.device, self.backend)),
            ("steps", self.steps.to_string()),
            ("test accuracy", percent(f64::from(self.test_accuracy))),
            ("hit rate", percent(self.hit_rate)),
            ("hit rate after the first epoch", later(self.hit_rate_after_first_epoch)),
            ("bucket hit rate", percent(self.bucket_hit_rate)),
            ("bucket hit rate after the first epoch", later(self.bucket_hit_rate_after_first_epoch)),
            ("allocations by the source", stats.source.allocations.to_string()),
        ];
        if let Some(later) = self.step_allocations_after_first_epoch {
            rows.push(("of these in steps after the first epoch", later.to_string()));
        }
        rows.extend([
            ("bytes reserved at the start", human(self.initial_bytes)),
            ("waits between streams", stats.stream_waits.to_string()),
            ("of these for reused memory", stats.reuse_waits.to_string()),
            ("buffers not kept, by a cap", not_kept.to_string()),
            ("time", format!("{:.2} s", self.wall_s)),
        ]);
        table(Some(["run", ""]), 0..1, rows.into_iter().map(|(name, figure)| [name.into(), figure]))
    }

    fn bytes(&self) -> String {
        let (stats, caps) = (&self.stats, &self.stats.caps);
        let rows = [
            ("requested", stats.requested_bytes, stats.peak.requested_bytes, None),
            ("live", stats.live_bytes, stats.peak.live_bytes, None),
            ("needed", stats.needed_bytes, stats.peak.needed_bytes, None),
            ("cached", stats.idle_bytes, stats.peak.idle_bytes, Some(caps.max_cached_bytes)),
            ("held", stats.held_bytes, stats.peak.held_bytes, Some(caps.limit_bytes)),
        ];
        let rows = rows.map(|(kind, now, peak, cap)| {
            let cap = cap.map_or(String::new(), |cap| cap.map_or("none".into(), human));
            [kind.into(), human(now), human(peak), cap]
        });
        table(Some(["bytes", "now", "peak", "cap"]), 0..1, rows)
    }

    fn buckets(&self) -> String {
        let rows = self.stats.buckets.iter().map(|bucket| {
            let [hits, misses, idle] =
                [bucket.hits, bucket.misses, bucket.idle_buffers].map(|count| count.to_string());
            [human(bucket.class), hits, misses, idle, human(bucket.idle_bytes)]
        });
        table(Some(["bucket", "hits", "misses", "idle buffers", "idle bytes"]), 0..1, rows)
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
