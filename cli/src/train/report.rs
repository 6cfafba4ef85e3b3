//! The result of a run as a JSON object and as tables.

use super::tally::Outcome;
use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::time::Duration;
use vrampool::{Backend, Pool, PoolStats};

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
    hits: u64,
    misses: u64,
    hit_rate: f64,
    /// `null` when there was no second epoch.
    hit_rate_after_first_epoch: Option<f64>,
    /// What steps of learning took from the device once the first epoch was over; likewise.
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
        Self {
            backend: properties.backend,
            device: properties.name.clone(),
            source: pool.source().to_string(),
            initial_bytes,
            steps,
            test_accuracy: test.accuracy,
            hits: stats.hits,
            misses: stats.misses,
            hit_rate: stats.hit_rate(),
            hit_rate_after_first_epoch: first_epoch.map(|first| stats.hit_rate_since(first)),
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

    /// One JSON object, on one line.
    pub(crate) fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Tables: the run, the pool's bytes by kind, its requests by bucket.
    pub(crate) fn tables(&self) -> String {
        [self.run(), self.bytes(), self.buckets()].map(|table| table.to_string()).join("\n")
    }

    fn run(&self) -> Table {
        let stats = &self.stats;
        let mut table = table(&["run", ""]);
        table.add_row(["device", &format!("{} ({})", self.device, self.backend)]);
        table.add_row(["steps", &self.steps.to_string()]);
        table.add_row(["test accuracy", &percent(f64::from(self.test_accuracy))]);
        table.add_row(["hit rate", &percent(self.hit_rate)]);
        let later = self.hit_rate_after_first_epoch.map_or("no second epoch".into(), percent);
        table.add_row(["hit rate after the first epoch", &later]);
        table.add_row(["allocations by the device", &stats.source.allocations.to_string()]);
        if let Some(later) = self.step_allocations_after_first_epoch {
            table.add_row(["of these in steps after the first epoch", &later.to_string()]);
        }
        table.add_row(["bytes reserved at the start", &size(self.initial_bytes)]);
        table.add_row(["waits between streams", &stats.stream_waits.to_string()]);
        table.add_row(["of these for reused memory", &stats.reuse_waits.to_string()]);
        table.add_row([
            "buffers not kept, by a cap",
            &(stats.released.by_byte_cap + stats.released.by_bucket_cap).to_string(),
        ]);
        table.add_row(["time", &format!("{:.2} s", self.wall_s)]);
        table
    }

    fn bytes(&self) -> Table {
        let stats = &self.stats;
        let mut table = table(&["bytes", "now", "peak", "cap"]);
        for (kind, now, peak, cap) in [
            ("requested", stats.requested_bytes, stats.peak.requested_bytes, None),
            ("live", stats.live_bytes, stats.peak.live_bytes, None),
            ("needed", stats.needed_bytes, stats.peak.needed_bytes, None),
            ("cached", stats.idle_bytes, stats.peak.idle_bytes, Some(stats.caps.max_cached_bytes)),
            ("held", stats.held_bytes, stats.peak.held_bytes, Some(stats.caps.limit_bytes)),
        ] {
            let cap = cap.map_or(String::new(), |cap| cap.map_or("none".into(), size));
            table.add_row([kind.to_owned(), size(now), size(peak), cap]);
        }
        table
    }

    fn buckets(&self) -> Table {
        let mut table = table(&["bucket", "hits", "misses", "idle buffers", "idle bytes"]);
        for bucket in &self.stats.buckets {
            table.add_row([
                size(bucket.class),
                bucket.hits.to_string(),
                bucket.misses.to_string(),
                bucket.idle_buffers.to_string(),
                size(bucket.idle_bytes),
            ]);
        }
        table
    }
}

/// An empty table, numbers to the right.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
