//! Samples to the recorder that is current in the `metrics` facade.

use super::sample::{Sample, Value};
use super::series::Series;
use metrics::Label;

pub(super) fn tell(series: &Series, sample: Sample<'_>) {
    let label = |(name, value): (&'static str, &str)| Label::new(name, value.to_owned());
    let labels: Vec<Label> = series.labels().into_iter().chain(sample.label).map(label).collect();
    match sample.value {
        Value::Count(count) => ::metrics::counter!(sample.figure.metric, labels).absolute(count),
        Value::Gauge(value) => ::metrics::gauge!(sample.figure.metric, labels).set(value),
    }
}
