//! Statistics of pools and of other owners through the [`metrics`](https://docs.rs/metrics) facade, with Prometheus's names and base
//! units.
//!
//! Metrics add no work to the hit path: a pool's own totals are copied when they are published. [`publish`]
//! publishes once, to the application's recorder; a [`Publisher`] publishes at an interval; an `Exporter`
//! (feature `prometheus`) serves them over HTTP without a recorder, beside whichever one the application has.
//!
//! [`METRICS`] lists the exported figures of a pool, each with the labels `pool`, `backend` and `device`. A pool is
//! an [`Owner`] of statistics; other crates publish their own, in tables of [`figures`](crate::figures!).

#[cfg(feature = "prometheus")]
mod endpoint;
#[cfg(feature = "prometheus")]
mod exporter;
#[cfg(feature = "prometheus")]
mod exposition;
mod holders;
mod owner;
mod owner_figures;
mod pool;
mod published;
mod publisher;
mod sample;
mod series;
#[cfg(feature = "prometheus")]
mod textfile;

pub use ::metrics;
#[cfg(feature = "prometheus")]
pub use exporter::{DEFAULT_ADDRESS, Exporter};
pub use owner::{Closing, Observed, Owner, Watch, WatchArc};
pub use owner_figures::OwnerFigures;
pub use pool::METRICS;
pub use publisher::Publisher;
#[cfg(feature = "prometheus")]
pub use textfile::write_textfile;

use crate::figures::{Figure, FigureKind};
use metrics::{KeyName, Label, Unit};
use owner_figures::Sample;
use sample::{Value, seconds};
use series::Series;

/// Registers the descriptions of metrics, for example [`METRICS`], with the current recorder.
pub fn describe(figures: &[&'static Figure]) {
    for figure in figures.iter().filter(|figure| figure.is_exported()) {
        let unit = match figure.metric_unit() {
            "bytes" => Unit::Bytes,
            "seconds" => Unit::Seconds,
            _ => Unit::Count,
        };
        let name = format!("{}{}", figure.metric, figure.series_suffix());
        match figure.kind {
            FigureKind::Counter => ::metrics::describe_counter!(name, unit, figure.metric_help()),
            _ => ::metrics::describe_gauge!(name, unit, figure.metric_help()),
        }
    }
}

/// Copies the statistics of a pool, or of another owner, to the current recorder, once. Counters in a recorder never
/// fall, so a second pool of the same name, backend and device goes unseen until it has counted as far as the first; a
/// [`Publisher`] sees to that.
///
/// ```
/// # use vrampool::{Pool, host::HostDevice};
/// # let pool = Pool::builder(&HostDevice::new()).build()?;
/// vrampool::telemetry::describe(&vrampool::telemetry::METRICS);
/// vrampool::telemetry::publish(&pool); // from the application's own timer, say
/// # Ok::<(), vrampool::Error>(())
/// ```
pub fn publish(owner: &impl Owner) {
    let series = Series::of(owner);
    owner.figures().samples().for_each(|sample| record(&series, sample));
}

/// Passes a sample to the recorder that is current in the `metrics` facade.
fn record(series: &Series, sample: &Sample) {
    let label = |(name, value): (&'static str, &str)| Label::new(name, value.to_owned());
    let own = series.labels().into_iter().map(label);
    let labels: Vec<Label> = own.chain(sample.labels().into_iter().map(label)).collect();
    let name = match sample.suffix {
        "" => KeyName::from_const_str(sample.figure.metric),
        suffix => format!("{}{suffix}", sample.figure.metric).into(),
    };
    match sample.value {
        Value::Count(count) => ::metrics::counter!(name, labels).absolute(count),
        // The facade's counters are whole numbers.
        Value::Time(time) => ::metrics::gauge!(name, labels).set(seconds(time)),
        Value::Gauge(value) => ::metrics::gauge!(name, labels).set(value),
    }
}
