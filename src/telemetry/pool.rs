//! The metrics of a pool: its statistics, and its device's memory.

use super::holders;
use super::holders::{ChildStats, SiteStats};
use super::owner::{Closing, Observed, Owner, Watch};
use super::owner_figures::{OwnLabel, OwnerFigures};
use super::sample::Value;
use crate::error::Error;
use crate::figures::{Figure, FigureKind, FigureLabel, Group};
use crate::heap::PoolCore;
use crate::heap::stats::{BucketStats, DeviceCall, PoolStats};
use crate::pool::{Handle, Pool, PoolReport};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use vrampool_backend::{Backend, MemoryInfo};

/// The figures that a pool exports. Figures that are values of one label are one metric.
///
/// ```
/// assert!(vrampool::telemetry::METRICS.iter().any(|figure| figure.metric == "vrampool_served_total"));
/// ```
pub static METRICS: LazyLock<Vec<&'static Figure>> = LazyLock::new(|| {
    let figures = [PoolStats::table(), BucketStats::table(), ChildStats::table(), SiteStats::table()]
        .concat()
        .into_iter()
        .chain(OTHERS.iter().map(|(figure, _)| figure))
        .chain([&INFO]);
    figures.filter(|figure| figure.is_exported()).collect()
});

/// A figure of a pool in Prometheus that is no field of its statistics, and its value, if that is known.
type Other = (Figure, fn(&PoolStats, &About) -> Option<f64>);

static OTHERS: [Other; 8] = [
    // Of an ended pool, its last value.
    other(
        FigureKind::Constant,
        "vrampool_hit_ratio",
        "ratio",
        "Fraction of served requests that made no driver call, since the pool was created; 0 before the first request.",
        |stats, _| Some(stats.hit_rate()),
    ),
    other(
        FigureKind::Constant,
        "vrampool_bucket_hit_ratio",
        "ratio",
        "Fraction of served requests that buckets served, since the pool was created; 0 before the first request.",
        |stats, _| Some(stats.bucket_hit_rate()),
    ),
    other(
        FigureKind::Gauge,
        "vrampool_internal_fragmentation_ratio",
        "ratio",
        "Fraction of live bytes added by rounding up to size classes.",
        |stats, _| Some(stats.internal_fragmentation()),
    ),
    other(
        FigureKind::Cap,
        "vrampool_overlap_bytes",
        "bytes",
        "The cap on memory that spares waits between streams, beyond the peak of live bytes; a share is of the \
         reserved bytes.",
        |stats, _| {
            let cap = stats.caps.overlap.bytes_of(stats.reserved_bytes);
            Some(cap.map_or(f64::INFINITY, |bytes| bytes as f64))
        },
    ),
    other(
        FigureKind::Gauge,
        "vrampool_device_total_bytes",
        "bytes",
        "Total memory of the device, if the device reports it.",
        |_, about| Some(about.device?.total_bytes as f64),
    ),
    other(
        FigureKind::Gauge,
        "vrampool_device_free_bytes",
        "bytes",
        "Free memory of the device, if the device reports it.",
        |_, about| Some(about.device?.free_bytes as f64),
    ),
    other(
        FigureKind::Gauge,
        "vrampool_device_lost",
        "",
        "1 if the device reported that it is lost, else 0.",
        |_, about| Some(f64::from(u8::from(about.is_device_lost))),
    ),
    other(
        FigureKind::Constant,
        "vrampool_start_time_seconds",
        "seconds",
        "The time at which the pool was created, in seconds since 1970.",
        |_, about| Some(about.start as f64),
    ),
];

/// The figure whose labels describe a pool and its settings.
static INFO: Figure = Figure::new(
    ["vrampool_info", "vrampool_info", ""],
    FigureKind::Constant,
    "",
    "Always 1. Further labels: `features`, with which vrampool was compiled, and each setting but `name`, as the pool \
     was built with it.",
    FigureLabel::Each("version"),
);

const fn other(
    kind: FigureKind,
    metric: &'static str,
    unit: &'static str,
    help: &'static str,
    value: fn(&PoolStats, &About) -> Option<f64>,
) -> Other {
    (Figure::new([metric, metric, ""], kind, unit, help, FigureLabel::None), value)
}

/// The backends and other features of this library that were compiled in.
const FEATURES: [(&str, bool); 8] = [
    ("cuda", cfg!(feature = "cuda")),
    ("host", cfg!(feature = "host")),
    ("metrics", cfg!(feature = "metrics")),
    ("opencl", cfg!(feature = "opencl")),
    ("prometheus", cfg!(feature = "prometheus")),
    ("serde", cfg!(feature = "serde")),
    ("tracing", cfg!(feature = "tracing")),
    ("wgpu", cfg!(feature = "wgpu")),
];

fn features() -> String {
    let compiled: Vec<_> = FEATURES.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| *name).collect();
    compiled.join(",")
}

/// Figures of a pool that its statistics do not contain.
struct About {
    device: Option<MemoryInfo>,
    is_device_lost: bool,
    start: u64,
    info: Arc<[(&'static str, String)]>,
}

/// Returns the figures of a pool, and of its device's memory while the pool exists.
fn figures_of(stats: &PoolStats, about: &About) -> OwnerFigures {
    let mut figures = OwnerFigures::of(stats);
    for bucket in &stats.buckets {
        figures.add(&bucket.class.to_string(), bucket);
    }
    for (figure, value) in &OTHERS {
        if let Some(value) = value(stats, about) {
            figures.push(figure, OwnLabel::None, Value::Gauge(value));
        }
    }
    figures.push(&INFO, OwnLabel::Info(Arc::clone(&about.info)), Value::Gauge(1.0));
    figures
}

impl<B: Backend> Pool<B> {
    /// The pools right below it: their names, statistics and shares.
    fn children(&self) -> Vec<(String, PoolStats, u64)> {
        let core = &self.handle.core;
        let is_child =
            |of: &Arc<PoolCore>| of.parent.as_ref().is_some_and(|parent| Arc::ptr_eq(parent, core));
        let children = core.descendants().into_iter().filter(is_child);
        children.map(|of| (of.name.clone(), of.stats_below::<B>(), of.depot().accounts.share)).collect()
    }

    fn about(&self) -> About {
        let core = &self.handle.core;
        let device = self.device().memory_info().map_err(Error::from);
        let device = device.inspect_err(|error| core.note_device_error(DeviceCall::MemoryInfo, error)).ok();
        About {
            device,
            is_device_lost: core.is_device_lost.load(Relaxed),
            start: core.start,
            info: self.info(),
        }
    }

    /// What describes the pool. Its name is a label of all figures.
    fn info(&self) -> Arc<[(&'static str, String)]> {
        let own = [("version", env!("CARGO_PKG_VERSION").to_owned()), ("features", features())];
        let settings = self.settings().iter().filter(|of| of.setting.name != "name");
        own.into_iter().chain(settings.map(|of| (of.setting.name, of.text.clone()))).collect()
    }
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
        let about = self.about();
        let PoolReport { stats, holders, .. } = self.report();
        let mut figures = figures_of(&stats, &about);
        holders::add(&mut figures, &stats, self.children(), &holders);
        figures
    }

    fn watch(&self) -> impl Watch + 'static {
        let start = self.handle.core.start;
        WatchedPool {
            handle: Arc::downgrade(&self.handle),
            last: Arc::clone(&self.handle.last),
            about: About { device: None, is_device_lost: false, start, info: self.info() },
        }
    }
}

/// A pool of any backend, not kept alive.
struct WatchedPool<B: Backend> {
    handle: Weak<Handle<B>>,
    /// Its figures when it ended; the pool has it as long as it may still write there.
    last: Arc<OnceLock<PoolStats>>,
    /// Its other figures when it ended.
    about: About,
}

impl<B: Backend> Watch for WatchedPool<B> {
    fn observe(&mut self) -> Observed {
        let Some(handle) = self.handle.upgrade() else {
            // In this order: a pool writes there before it lets go of it.
            let is_final = Arc::get_mut(&mut self.last).is_some();
            return match self.last.get() {
                Some(last) => Observed::Ended(Some(figures_of(last, &self.about))),
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
