//! The metrics of a pool: its statistics, and its device's memory.

use super::owner::{Closing, Observed, Owner, Watch};
use super::owner_figures::OwnerFigures;
use super::sample::Value;
use crate::cache::stats::table::{BucketStats, PoolStats};
use crate::figures::{Figure, FigureKind, FigureLabel, Group};
use crate::pool::{Handle, Pool};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use vrampool_backend::{Backend, MemoryInfo};

/// The figures that a pool exports. Figures that are values of one label are one metric.
///
/// ```
/// assert!(vrampool::telemetry::METRICS.iter().any(|figure| figure.metric == "vrampool_hits_total"));
/// ```
pub static METRICS: LazyLock<Vec<&'static Figure>> = LazyLock::new(|| {
    let figures = [PoolStats::table(), BucketStats::table()].concat().into_iter().chain(&OTHERS);
    figures.filter(|figure| figure.is_exported()).collect()
});

/// The figures of a pool in Prometheus that are no fields of its statistics.
static OTHERS: [Figure; 6] = [
    // Of an ended pool, its last value.
    other(
        FigureKind::Constant,
        "vrampool_hit_ratio",
        "ratio",
        "Ratio of hits to requests since the pool was created; 0 before the first request.",
    ),
    other(
        FigureKind::Gauge,
        "vrampool_internal_fragmentation_ratio",
        "ratio",
        "Fraction of live bytes added by rounding up to size classes.",
    ),
    other(
        FigureKind::Cap,
        "vrampool_overlap_bytes",
        "bytes",
        "The cap on memory that spares waits between streams, beyond the peak of live bytes; a share is of the \
         reserved bytes.",
    ),
    other(
        FigureKind::Gauge,
        "vrampool_device_total_bytes",
        "bytes",
        "Total memory of the device, if the device reports it.",
    ),
    other(
        FigureKind::Gauge,
        "vrampool_device_free_bytes",
        "bytes",
        "Free memory of the device, if the device reports it.",
    ),
    Figure {
        label: FigureLabel::Each("version"),
        ..other(
            FigureKind::Constant,
            "vrampool_build_info",
            "",
            "Always 1; the label is the version of vrampool.",
        )
    },
];

const fn other(kind: FigureKind, metric: &'static str, unit: &'static str, help: &'static str) -> Figure {
    Figure::new([metric, metric, ""], kind, unit, help, FigureLabel::None)
}

/// Returns the figures of a pool, and of its device's memory while the pool exists.
fn figures_of(stats: &PoolStats, device: Option<MemoryInfo>) -> OwnerFigures {
    let mut figures = OwnerFigures::of(stats);
    for bucket in &stats.buckets {
        figures.add(&bucket.class.to_string(), bucket);
    }
    let overlap = stats.caps.overlap.bytes_of(stats.reserved_bytes);
    let others = [
        Some(stats.hit_rate()),
        Some(stats.internal_fragmentation()),
        Some(overlap.map_or(f64::INFINITY, |bytes| bytes as f64)),
        device.as_ref().map(|device| device.total_bytes as f64),
        device.as_ref().map(|device| device.free_bytes as f64),
        Some(1.0),
    ];
    for (figure, value) in OTHERS.iter().zip(others) {
        if let Some(value) = value {
            let label = figure.metric_label().map_or("", |_| env!("CARGO_PKG_VERSION"));
            figures.push(label, figure, Value::Gauge(value));
        }
    }
    figures
}

impl<B: Backend> Owner for Pool<B> {
    type Device = B;

    const LABEL: &'static str = "pool";

    fn name(&self) -> &str {
        self.name()
    }

    fn device(&self) -> &B {
        self.device()
    }

    fn figures(&self) -> OwnerFigures {
        figures_of(&self.stats(), self.device().memory_info().ok())
    }

    fn watch(&self) -> impl Watch + 'static {
        WatchedPool { handle: Arc::downgrade(&self.handle), last: Arc::clone(&self.handle.last) }
    }
}

/// A pool of any backend, not kept alive.
struct WatchedPool<B: Backend> {
    handle: Weak<Handle<B>>,
    /// Its figures when it ended; the pool has it as long as it may still write there.
    last: Arc<OnceLock<PoolStats>>,
}

impl<B: Backend> Watch for WatchedPool<B> {
    fn observe(&mut self) -> Observed {
        let Some(handle) = self.handle.upgrade() else {
            // In this order: a pool writes there before it lets go of it.
            let is_final = Arc::get_mut(&mut self.last).is_some();
            return match self.last.get() {
                Some(last) => Observed::Ended(Some(figures_of(last, None))),
                None if is_final => Observed::Ended(None),
                None => Observed::Ending,
            };
        };
        let pool = Pool { handle };
        let figures = pool.figures();
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
