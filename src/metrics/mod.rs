//! A pool's and a broker's statistics through the [`metrics`](https://docs.rs/metrics) facade, with
//! Prometheus's names and base units.
//!
//! Metrics add no work to the hit path: a pool's own totals are copied when they are published. [`publish`]
//! and [`publish_broker`] publish once, to the application's recorder; a [`Publisher`] publishes at an
//! interval; an `Exporter` (feature `prometheus`) serves them over HTTP without a recorder, beside whichever
//! one the application has.
//!
//! [`METRICS`] lists the metrics of a pool, each with the labels `pool`, `backend` and `device`;
//! [`BROKER_METRICS`] those of a broker, each with the labels `broker`, `backend` and `device`.

mod broker;
#[cfg(feature = "prometheus")]
mod endpoint;
#[cfg(feature = "prometheus")]
mod exporter;
#[cfg(feature = "prometheus")]
mod exposition;
mod facade;
mod pool;
mod published;
mod publisher;
mod registry;
mod sample;
mod series;

pub use broker::{BROKER_METRICS, publish_broker};
#[cfg(feature = "prometheus")]
pub use exporter::{DEFAULT_ADDRESS, Exporter};
pub use pool::METRICS;
pub use publisher::Publisher;

use crate::pool::Pool;
use metrics::Unit;
use parking_lot::Mutex;
use pool::PoolFigures;
use sample::Figures;
use series::Series;
use std::any::Any;
use vrampool_backend::Backend;

/// One publication at a time, whoever publishes: nothing older comes behind what is newer, and nobody who
/// only looks at a pool or a broker is taken for one who has it.
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

/// Copies a pool's statistics to the current recorder, once. Counters in a recorder never fall, so a second
/// pool of the same name, backend and device goes unseen until it has counted as far as the first; a
/// [`Publisher`] sees to that.
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
    let series = Series::of_pool(pool);
    PoolFigures::of(pool).samples(&mut |sample| facade::tell(&series, sample));
}
