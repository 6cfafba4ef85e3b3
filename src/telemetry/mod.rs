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
mod metric;
mod pool;
mod published;
mod publisher;
mod registry;
mod sample;
mod series;

pub use ::metrics;
pub use broker::{BROKER_METRICS, publish_broker};
#[cfg(feature = "prometheus")]
pub use exporter::{DEFAULT_ADDRESS, Exporter};
pub use metric::{Metric, MetricKind};
pub use pool::METRICS;
pub use publisher::Publisher;

use crate::pool::Pool;
use MetricKind::{Counter, Gauge};
use metrics::Unit;
use pool::PoolFigures;
use sample::Figures;
use series::Series;
use vrampool_backend::Backend;

/// Registers every metric's description with the current recorder.
pub fn describe() {
    for metric in METRICS.iter().chain(BROKER_METRICS) {
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
/// vrampool::telemetry::describe();
/// vrampool::telemetry::publish(&pool); // from the application's own timer, say
/// # Ok(())
/// # }
/// ```
pub fn publish<B: Backend>(pool: &Pool<B>) {
    let series = Series::of_pool(pool);
    PoolFigures::of(pool).samples(&mut |sample| facade::tell(&series, sample));
}
