//! Samples to the recorder that is current in the `metrics` facade.

use super::sample::{Sample, Value, seconds};
use super::series::Series;
use metrics::{KeyName, Label};

pub(super) fn tell(series: &Series, sample: Sample<'_>) {
    let label = |(name, value): (&'static str, &str)| Label::new(name, value.to_owned());
    let own = series.labels().into_iter().map(label);
    let labels: Vec<Label> = own.chain(sample.labels.into_iter().map(label)).collect();
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
