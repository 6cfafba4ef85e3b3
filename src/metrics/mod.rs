//! A pool's and a broker's statistics through the [`metrics`](https://docs.rs/metrics) facade, with Prometheus's names and base units.
//!
//! Nothing here is on the hit path: a pool counts for itself, and its totals are copied to the recorder when somebody
//! publishes. [`publish`] and [`publish_broker`] do it once, on whatever recorder the application has; a [`Publisher`] does it every so often;
//! an `Exporter` (feature `prometheus`) also serves it over HTTP, on a recorder of its own, so that it gets on with an
//! application that has one already.
//!
//! [`METRICS`] lists all there is of a pool, each with the labels `pool`, `backend` and `device`; [`BROKER_METRICS`] of a broker, each
//! with the labels `broker`, `backend` and `device`.

mod broker;
#[cfg(feature = "prometheus")]
mod endpoint;
#[cfg(feature = "prometheus")]
mod escaping;
#[cfg(feature = "prometheus")]
mod exporter;
mod listed_brokers;
mod publisher;

pub use broker::{BROKER_METRICS, publish_broker};
#[cfg(feature = "prometheus")]
pub use exporter::{DEFAULT_ADDRESS, Exporter};
pub use publisher::Publisher;

use crate::UNLIMITED;
use crate::pool::Pool;
use crate::served_by::ServedBy;
use crate::stats::{PoolStats, Rung};
use ::metrics::{Label, SharedString, Unit};
use parking_lot::Mutex;
use std::any::Any;
use vrampool_backend::{Backend, MemoryInfo};

/// One publication at a time, whoever publishes: nothing older comes behind what is newer, and nobody who only looks at a pool or a
/// broker is taken for one who has it.
static TURN: Mutex<()> = Mutex::new(());

/// What goes with the last handle to a pool or a broker, when it is one who publishes that has it.
type Closing = Box<dyn Any + Send>;

/// What a metric is to Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only ever grows.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// One exported metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name in Prometheus.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// Labels beyond `pool` or `broker`, `backend` and `device`.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

use MetricKind::{Counter, Gauge};

const fn metric(
    name: &'static str,
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, labels, help }
}

/// Every metric that a pool exports.
///
/// ```
/// assert!(vrampool::metrics::METRICS.iter().any(|metric| metric.name == "vrampool_hits_total"));
/// ```
pub const METRICS: [Metric; 37] = [
    metric("vrampool_hits_total", Counter, &["bucket"], "Requests served from a bucket."),
    metric(
        "vrampool_misses_total",
        Counter,
        &["bucket"],
        "Requests not served from a bucket, failed ones included.",
    ),
    metric(
        "vrampool_requests_total",
        Counter,
        &["served_by"],
        "Requests that were served, by the layer that served them: the cache, the arena, or the driver.",
    ),
    metric(
        "vrampool_driver_calls_total",
        Counter,
        &[],
        "Calls of the driver for memory: allocations, frees and mappings.",
    ),
    metric("vrampool_allocated_bytes_total", Counter, &[], "Bytes taken from the source in all."),
    metric("vrampool_source_allocations_total", Counter, &[], "Allocations that the source made."),
    metric("vrampool_source_frees_total", Counter, &[], "Allocations that the source gave back."),
    metric("vrampool_cap_drops_total", Counter, &["cap"], "Buffers not kept because a cap was reached."),
    metric("vrampool_evictions_total", Counter, &[], "Idle buffers given back to make room, or by trimming."),
    metric("vrampool_stream_waits_total", Counter, &[], "Waits that the pool put between streams."),
    metric(
        "vrampool_mapping_calls_total",
        Counter,
        &[],
        "Calls of the device by which a virtual source mapped memory or gave it back.",
    ),
    metric(
        "vrampool_ladder_rungs_total",
        Counter,
        &["rung"],
        "Rungs of the out-of-memory ladder that were climbed.",
    ),
    metric("vrampool_allocation_failures_total", Counter, &["reason"], "Requests that got an error."),
    metric("vrampool_cached_bytes", Gauge, &[], "Bytes idle in buckets."),
    metric("vrampool_live_bytes", Gauge, &[], "Bytes handed out, as size classes."),
    metric("vrampool_held_bytes", Gauge, &[], "Bytes taken from the source: live, idle and in transit."),
    metric("vrampool_requested_bytes", Gauge, &[], "Bytes handed out, as they were asked for."),
    metric("vrampool_reserved_bytes", Gauge, &[], "Bytes that the source took from the device."),
    metric(
        "vrampool_mappings",
        Gauge,
        &[],
        "Mappings of a virtual source's physical memory; at most 4 for each page of the limit, and 1024.",
    ),
    metric("vrampool_stitched_ranges", Gauge, &[], "Stitched ranges of a virtual source."),
    metric(
        "vrampool_address_bytes",
        Gauge,
        &[],
        "Addresses that an arena or a virtual source reserved; at most 8 times a virtual source's limit.",
    ),
    metric("vrampool_peak_cached_bytes", Gauge, &[], "The most vrampool_cached_bytes was."),
    metric("vrampool_peak_live_bytes", Gauge, &[], "The most vrampool_live_bytes was."),
    metric("vrampool_peak_held_bytes", Gauge, &[], "The most vrampool_held_bytes was."),
    metric("vrampool_peak_requested_bytes", Gauge, &[], "The most vrampool_requested_bytes was."),
    metric("vrampool_max_cached_bytes", Gauge, &[], "The cap on vrampool_cached_bytes; +Inf without one."),
    metric("vrampool_limit_bytes", Gauge, &[], "The hard cap on vrampool_held_bytes; +Inf without one."),
    metric("vrampool_budget_bytes", Gauge, &[], "The soft cap on vrampool_held_bytes; +Inf without one."),
    metric(
        "vrampool_bucket_max_buffers",
        Gauge,
        &[],
        "The cap on buffers idle in one bucket; +Inf without one.",
    ),
    metric("vrampool_live_buffers", Gauge, &[], "Buffers handed out."),
    metric("vrampool_bucket_idle_bytes", Gauge, &["bucket"], "Bytes idle in one bucket."),
    metric("vrampool_bucket_idle_buffers", Gauge, &["bucket"], "Buffers idle in one bucket."),
    metric(
        "vrampool_hit_ratio",
        Gauge,
        &[],
        "Hits over requests since the pool was made; 0 before the first.",
    ),
    metric(
        "vrampool_internal_fragmentation_ratio",
        Gauge,
        &[],
        "The share of live bytes that rounding up to size classes added.",
    ),
    metric("vrampool_device_total_bytes", Gauge, &[], "The device's memory in all, where it tells."),
    metric("vrampool_device_free_bytes", Gauge, &[], "The device's free memory, where it tells."),
    metric("vrampool_build_info", Gauge, &["version"], "Always 1; the label is vrampool's version."),
];

/// Registers every metric's description with the current recorder.
pub fn describe() {
    for metric in METRICS.iter().chain(&BROKER_METRICS) {
        let unit = if metric.name.ends_with("_bytes") || metric.name.ends_with("_bytes_total") {
            Unit::Bytes
        } else {
            Unit::Count
        };
        match metric.kind {
            Counter => ::metrics::describe_counter!(metric.name, unit, metric.help),
            Gauge => ::metrics::describe_gauge!(metric.name, unit, metric.help),
        }
    }
}

/// Copies a pool's statistics to the current recorder, once. Counters in a recorder never fall, so a second pool of the
/// same name, backend and device goes unseen until it has counted as far as the first; a [`Publisher`] sees to that.
///
/// ```
/// # use vrampool::{Pool, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let pool = Pool::builder(&HostDevice::new()).build()?;
/// vrampool::metrics::describe();
/// vrampool::metrics::publish(&pool); // from the application's own timer, say
/// # Ok(())
/// # }
/// ```
pub fn publish<B: Backend>(pool: &Pool<B>) {
    let series = Series::of(pool);
    series.publish(&pool.stats());
    if let Ok(info) = pool.device().memory_info() {
        series.publish_device(info);
    }
}

/// The label values of a pool or a broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Series {
    /// What it is of, which is the label that has the name: `pool` or `broker`.
    owner: &'static str,
    name: String,
    backend: &'static str,
    device: String,
}

impl Series {
    pub(crate) fn of<B: Backend>(pool: &Pool<B>) -> Self {
        let device = pool.device();
        Self {
            owner: "pool",
            name: pool.name().to_owned(),
            backend: device.id().backend,
            device: device.label(),
        }
    }

    /// The same of the so manieth of its name, from 1.
    fn numbered(&self, number: u64) -> Self {
        match number {
            0 | 1 => self.clone(),
            _ => Self { name: format!("{}#{number}", self.name), ..self.clone() },
        }
    }

    fn labels(&self, more: &[(&'static str, SharedString)]) -> Vec<Label> {
        let mut labels = vec![
            Label::new(self.owner, self.name.clone()),
            Label::from_static_parts("backend", self.backend),
            Label::new("device", self.device.clone()),
        ];
        labels.extend(more.iter().map(|(name, value)| Label::new(*name, value.clone())));
        labels
    }

    fn count(&self, name: &'static str, more: &[(&'static str, SharedString)], value: u64) {
        ::metrics::counter!(name, self.labels(more)).absolute(value);
    }

    fn gauge(&self, name: &'static str, more: &[(&'static str, SharedString)], value: f64) {
        ::metrics::gauge!(name, self.labels(more)).set(value);
    }

    fn publish(&self, stats: &PoolStats) {
        for bucket in &stats.buckets {
            let label = [("bucket", SharedString::from(bucket.class.to_string()))];
            self.count("vrampool_hits_total", &label, bucket.hits);
            self.count("vrampool_misses_total", &label, bucket.misses);
            self.gauge("vrampool_bucket_idle_bytes", &label, bucket.idle_bytes as f64);
            self.gauge("vrampool_bucket_idle_buffers", &label, bucket.idle_buffers as f64);
        }
        for layer in ServedBy::ALL {
            let label = [("served_by", SharedString::const_str(layer.name()))];
            self.count("vrampool_requests_total", &label, stats.served_by(layer));
        }
        self.count("vrampool_driver_calls_total", &[], stats.memory_calls());
        self.count("vrampool_allocated_bytes_total", &[], stats.bytes_allocated);
        self.count("vrampool_source_allocations_total", &[], stats.source_allocations);
        self.count("vrampool_source_frees_total", &[], stats.source_frees);
        let cap = |name: &'static str| [("cap", SharedString::const_str(name))];
        self.count("vrampool_cap_drops_total", &cap("max_cached_bytes"), stats.drops_over_bytes);
        self.count("vrampool_cap_drops_total", &cap("max_buffers_per_bucket"), stats.drops_over_count);
        self.count("vrampool_evictions_total", &[], stats.evictions);
        self.count("vrampool_stream_waits_total", &[], stats.stream_waits);
        self.count("vrampool_mapping_calls_total", &[], stats.mapping_calls);
        for rung in Rung::ALL {
            let label = [("rung", SharedString::const_str(rung.name()))];
            self.count("vrampool_ladder_rungs_total", &label, stats.rung(rung));
        }
        let reason = |name: &'static str| [("reason", SharedString::const_str(name))];
        self.count("vrampool_allocation_failures_total", &reason("limit"), stats.failed_by_limit);
        self.count("vrampool_allocation_failures_total", &reason("device"), stats.failed_by_device);
        self.count("vrampool_allocation_failures_total", &reason("backend"), stats.failed_by_backend);
        self.count("vrampool_allocation_failures_total", &reason("invalid"), stats.failed_invalid);
        for (name, value) in [
            ("vrampool_cached_bytes", stats.bytes_cached),
            ("vrampool_live_bytes", stats.bytes_live),
            ("vrampool_held_bytes", stats.bytes_held),
            ("vrampool_requested_bytes", stats.bytes_requested),
            ("vrampool_reserved_bytes", stats.bytes_reserved),
            ("vrampool_mappings", stats.mappings),
            ("vrampool_stitched_ranges", stats.stitched_ranges),
            ("vrampool_address_bytes", stats.address_bytes),
            ("vrampool_peak_cached_bytes", stats.peak_cached),
            ("vrampool_peak_live_bytes", stats.peak_live),
            ("vrampool_peak_held_bytes", stats.peak_held),
            ("vrampool_peak_requested_bytes", stats.peak_requested),
            ("vrampool_live_buffers", stats.live_buffers),
        ] {
            self.gauge(name, &[], value as f64);
        }
        for (name, cap) in [
            ("vrampool_max_cached_bytes", stats.max_cached_bytes),
            ("vrampool_bucket_max_buffers", stats.max_buffers_per_bucket),
            ("vrampool_limit_bytes", stats.limit),
            ("vrampool_budget_bytes", stats.budget),
        ] {
            self.gauge(name, &[], if cap == UNLIMITED { f64::INFINITY } else { cap as f64 });
        }
        self.gauge("vrampool_hit_ratio", &[], stats.hit_rate());
        self.gauge("vrampool_internal_fragmentation_ratio", &[], stats.internal_fragmentation());
        self.gauge("vrampool_build_info", &[("version", env!("CARGO_PKG_VERSION").into())], 1.0);
    }

    fn publish_device(&self, info: MemoryInfo) {
        self.gauge("vrampool_device_total_bytes", &[], info.total_bytes as f64);
        self.gauge("vrampool_device_free_bytes", &[], info.free_bytes as f64);
    }

    /// The pool is gone: a recorder keeps a gauge's last value for ever, so what was held must be set to nothing.
    fn publish_closed(&self, last: &PoolStats) {
        let mut gone =
            PoolStats { max_cached_bytes: last.max_cached_bytes, limit: last.limit, ..last.clone() };
        for bytes in [
            &mut gone.bytes_cached,
            &mut gone.bytes_live,
            &mut gone.bytes_held,
            &mut gone.bytes_requested,
            &mut gone.bytes_reserved,
            &mut gone.mappings,
            &mut gone.stitched_ranges,
            &mut gone.address_bytes,
            &mut gone.live_buffers,
        ] {
            *bytes = 0;
        }
        for bucket in &mut gone.buckets {
            (bucket.idle_bytes, bucket.idle_buffers) = (0, 0);
        }
        self.publish(&gone);
    }
}
