//! What a pool exports: the metrics of its statistics and of its device's memory.

use super::metric::MetricKind::{Counter, Gauge};
use super::metric::{Metric, metric};
use super::published::{Closing, Observed, Watch};
use super::sample::{Figures, Sample};
use crate::cache::oom_rung::Rung;
use crate::cache::served_by::ServedBy;
use crate::cache::stats::PoolStats;
use crate::pool::{Handle, Pool};
use std::sync::{Arc, OnceLock, Weak};
use vrampool_backend::{Backend, MemoryInfo};

/// Every metric that a pool exports.
///
/// ```
/// assert!(vrampool::telemetry::METRICS.iter().any(|metric| metric.name == "vrampool_hits_total"));
/// ```
pub const METRICS: &[Metric] = &[
    metric("vrampool_hits_total", Counter, &["bucket"], "Requests served from a bucket."),
    metric(
        "vrampool_misses_total",
        Counter,
        &["bucket"],
        "Requests not served from a bucket, including failed requests.",
    ),
    metric(
        "vrampool_requests_total",
        Counter,
        &["served_by"],
        "Served requests, by serving layer: the cache, the arena, or the driver.",
    ),
    metric(
        "vrampool_driver_calls_total",
        Counter,
        &[],
        "Memory calls of the driver: allocations, frees and mappings.",
    ),
    metric("vrampool_allocated_bytes_total", Counter, &[], "Total bytes allocated from the source."),
    metric("vrampool_source_allocations_total", Counter, &[], "Allocations from the source."),
    metric("vrampool_source_frees_total", Counter, &[], "Allocations returned to the source."),
    metric(
        "vrampool_cap_drops_total",
        Counter,
        &["cap"],
        "Freed buffers that were not cached because of a cap.",
    ),
    metric("vrampool_evictions_total", Counter, &[], "Idle buffers released to make room, or by trimming."),
    metric("vrampool_stream_waits_total", Counter, &[], "Waits between streams that the pool inserted."),
    metric(
        "vrampool_mapping_calls_total",
        Counter,
        &[],
        "Device calls by which a virtual source mapped or released memory.",
    ),
    metric(
        "vrampool_ladder_rungs_total",
        Counter,
        &["rung"],
        "Recovery steps taken after the device was out of memory, by step.",
    ),
    metric("vrampool_allocation_failures_total", Counter, &["reason"], "Requests that failed."),
    metric("vrampool_cached_bytes", Gauge, &[], "Idle bytes in buckets."),
    metric("vrampool_live_bytes", Gauge, &[], "Live bytes, rounded up to size classes."),
    metric("vrampool_held_bytes", Gauge, &[], "Bytes held from the source: live and idle."),
    metric("vrampool_requested_bytes", Gauge, &[], "Live bytes as requested, before rounding."),
    metric("vrampool_reserved_bytes", Gauge, &[], "Bytes that the source reserved on the device."),
    metric(
        "vrampool_mappings",
        Gauge,
        &[],
        "Mappings of physical memory of a virtual source; at most 4 per page of the limit, plus 1024.",
    ),
    metric("vrampool_stitched_ranges", Gauge, &[], "Stitched ranges of a virtual source."),
    metric(
        "vrampool_address_bytes",
        Gauge,
        &[],
        "Address space reserved by an arena or a virtual source; at most 8 times the limit of a virtual source.",
    ),
    metric("vrampool_peak_cached_bytes", Gauge, &[], "Peak of vrampool_cached_bytes."),
    metric("vrampool_peak_live_bytes", Gauge, &[], "Peak of vrampool_live_bytes."),
    metric("vrampool_peak_held_bytes", Gauge, &[], "Peak of vrampool_held_bytes."),
    metric("vrampool_peak_requested_bytes", Gauge, &[], "Peak of vrampool_requested_bytes."),
    metric("vrampool_max_cached_bytes", Gauge, &[], "The cap on vrampool_cached_bytes; +Inf if unlimited."),
    metric("vrampool_limit_bytes", Gauge, &[], "The hard cap on vrampool_held_bytes; +Inf if unlimited."),
    metric("vrampool_budget_bytes", Gauge, &[], "The soft cap on vrampool_held_bytes; +Inf if unlimited."),
    metric(
        "vrampool_bucket_max_buffers",
        Gauge,
        &[],
        "The cap on idle buffers in one bucket; +Inf if unlimited.",
    ),
    metric("vrampool_live_buffers", Gauge, &[], "Live buffers."),
    metric("vrampool_bucket_idle_bytes", Gauge, &["bucket"], "Idle bytes in one bucket."),
    metric("vrampool_bucket_idle_buffers", Gauge, &["bucket"], "Idle buffers in one bucket."),
    metric(
        "vrampool_hit_ratio",
        Gauge,
        &[],
        "Ratio of hits to requests since the pool was created; 0 before the first request.",
    ),
    metric(
        "vrampool_internal_fragmentation_ratio",
        Gauge,
        &[],
        "Fraction of live bytes added by rounding up to size classes.",
    ),
    metric(
        "vrampool_device_total_bytes",
        Gauge,
        &[],
        "Total memory of the device, if the device reports it.",
    ),
    metric("vrampool_device_free_bytes", Gauge, &[], "Free memory of the device, if the device reports it."),
    metric("vrampool_build_info", Gauge, &["version"], "Always 1; the label is the version of vrampool."),
];

/// A pool's statistics, and its device's memory while the pool is there.
#[derive(Debug, Clone)]
pub(super) struct PoolFigures {
    stats: PoolStats,
    /// Of this pool and of the earlier ones, each by its own source: summed counts do not tell.
    memory_calls: u64,
    device: Option<MemoryInfo>,
}

impl PoolFigures {
    pub(super) fn of<B: Backend>(pool: &Pool<B>) -> Self {
        Self { device: pool.device().memory_info().ok(), ..Self::ended(pool.stats()) }
    }

    fn ended(stats: PoolStats) -> Self {
        Self { memory_calls: stats.memory_calls(), stats, device: None }
    }
}

/// A pool of any backend, not kept alive.
pub(super) struct WatchedPool<B: Backend> {
    handle: Weak<Handle<B>>,
    /// Its figures when it ended; the pool has it as long as it may still write there.
    last: Arc<OnceLock<PoolStats>>,
}

impl<B: Backend> WatchedPool<B> {
    pub(super) fn new(pool: &Pool<B>) -> Self {
        Self { handle: Arc::downgrade(&pool.handle), last: Arc::clone(&pool.handle.last) }
    }
}

impl<B: Backend> Watch<PoolFigures> for WatchedPool<B> {
    fn observe(&mut self) -> Observed<PoolFigures> {
        let Some(handle) = self.handle.upgrade() else {
            // In this order: a pool writes there before it lets go of it.
            let is_final = Arc::get_mut(&mut self.last).is_some();
            return match self.last.get() {
                Some(last) => Observed::Gone(Some(PoolFigures::ended(last.clone()))),
                None if is_final => Observed::Gone(None),
                None => Observed::Ending,
            };
        };
        let pool = Pool { handle };
        let figures = PoolFigures::of(&pool);
        let last = Arc::into_inner(pool.handle).map(|handle| Box::new(handle) as Closing);
        Observed::There(figures, last)
    }

    fn is_there(&self) -> bool {
        self.handle.strong_count() > 0
    }

    fn place(&self) -> usize {
        self.handle.as_ptr().addr()
    }
}

impl Figures for PoolFigures {
    fn counting_on(&self, before: &Self) -> Self {
        Self {
            stats: self.stats.counting_on(&before.stats),
            memory_calls: self.memory_calls.saturating_add(before.memory_calls),
            device: self.device,
        }
    }

    fn closed(&self) -> Self {
        let mut stats = self.stats.clone();
        for now in [
            &mut stats.idle_bytes,
            &mut stats.live_bytes,
            &mut stats.held_bytes,
            &mut stats.requested_bytes,
            &mut stats.source.reserved_bytes,
            &mut stats.virtual_memory.mappings,
            &mut stats.virtual_memory.stitched_ranges,
            &mut stats.virtual_memory.address_bytes,
            &mut stats.live_buffers,
        ] {
            *now = 0;
        }
        for bucket in &mut stats.buckets {
            (bucket.idle_bytes, bucket.idle_buffers) = (0, 0);
        }
        Self { stats, memory_calls: self.memory_calls, device: None }
    }

    fn samples(&self, to: &mut dyn FnMut(Sample<'_>)) {
        let stats = &self.stats;
        for bucket in &stats.buckets {
            let class = bucket.class.to_string();
            to(Sample::count("vrampool_hits_total", bucket.hits).with("bucket", &class));
            to(Sample::count("vrampool_misses_total", bucket.misses).with("bucket", &class));
            to(Sample::gauge("vrampool_bucket_idle_bytes", bucket.idle_bytes as f64).with("bucket", &class));
            to(Sample::gauge("vrampool_bucket_idle_buffers", bucket.idle_buffers as f64)
                .with("bucket", &class));
        }
        for &layer in ServedBy::ALL {
            let served = stats.served_by(layer);
            to(Sample::count("vrampool_requests_total", served).with("served_by", layer.name()));
        }
        for &rung in Rung::ALL {
            to(Sample::count("vrampool_ladder_rungs_total", stats.rung(rung)).with("rung", rung.name()));
        }
        for (cap, drops) in [
            ("max_cached_bytes", stats.released.by_byte_cap),
            ("max_buffers_per_bucket", stats.released.by_bucket_cap),
        ] {
            to(Sample::count("vrampool_cap_drops_total", drops).with("cap", cap));
        }
        for (reason, failures) in [
            ("limit", stats.failed.by_limit),
            ("device", stats.failed.by_device),
            ("backend", stats.failed.by_backend),
            ("invalid", stats.failed.invalid),
        ] {
            to(Sample::count("vrampool_allocation_failures_total", failures).with("reason", reason));
        }
        for (name, count) in [
            ("vrampool_driver_calls_total", self.memory_calls),
            ("vrampool_allocated_bytes_total", stats.source.allocated_bytes),
            ("vrampool_source_allocations_total", stats.source.allocations),
            ("vrampool_source_frees_total", stats.source.frees),
            ("vrampool_evictions_total", stats.released.evicted),
            ("vrampool_stream_waits_total", stats.stream_waits),
            ("vrampool_mapping_calls_total", stats.virtual_memory.calls),
        ] {
            to(Sample::count(name, count));
        }
        self.gauges(to);
    }
}

impl PoolFigures {
    fn gauges(&self, to: &mut dyn FnMut(Sample<'_>)) {
        let Self { stats, device, .. } = self;
        for (name, value) in [
            ("vrampool_cached_bytes", stats.idle_bytes),
            ("vrampool_live_bytes", stats.live_bytes),
            ("vrampool_held_bytes", stats.held_bytes),
            ("vrampool_requested_bytes", stats.requested_bytes),
            ("vrampool_reserved_bytes", stats.source.reserved_bytes),
            ("vrampool_mappings", stats.virtual_memory.mappings),
            ("vrampool_stitched_ranges", stats.virtual_memory.stitched_ranges),
            ("vrampool_address_bytes", stats.virtual_memory.address_bytes),
            ("vrampool_peak_cached_bytes", stats.peak.idle_bytes),
            ("vrampool_peak_live_bytes", stats.peak.live_bytes),
            ("vrampool_peak_held_bytes", stats.peak.held_bytes),
            ("vrampool_peak_requested_bytes", stats.peak.requested_bytes),
            ("vrampool_live_buffers", stats.live_buffers),
        ] {
            to(Sample::gauge(name, value as f64));
        }
        for (name, cap) in [
            ("vrampool_max_cached_bytes", stats.caps.max_cached_bytes),
            ("vrampool_bucket_max_buffers", stats.caps.max_buffers_per_bucket),
            ("vrampool_limit_bytes", stats.caps.limit),
            ("vrampool_budget_bytes", stats.caps.budget),
        ] {
            to(Sample::gauge(name, cap.map_or(f64::INFINITY, |cap| cap as f64)));
        }
        to(Sample::gauge("vrampool_hit_ratio", stats.hit_rate()));
        to(Sample::gauge("vrampool_internal_fragmentation_ratio", stats.internal_fragmentation()));
        to(Sample::gauge("vrampool_build_info", 1.0).with("version", env!("CARGO_PKG_VERSION")));
        if let Some(device) = device {
            to(Sample::gauge("vrampool_device_total_bytes", device.total_bytes as f64));
            to(Sample::gauge("vrampool_device_free_bytes", device.free_bytes as f64));
        }
    }
}
