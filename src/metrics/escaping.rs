//! Labels that reach Prometheus as they are.
//!
//! The recorder of `metrics-exporter-prometheus` takes a backslash before a quote for an escape that is there already, so that the labels
//! `"` and `\"` would be one series. It takes two backslashes for one.

use ::metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit};
use std::borrow::Cow;

/// Doubles the backslashes of all labels.
#[derive(Debug)]
pub(super) struct Escaping<'a, R>(pub(super) &'a R);

fn escaped(key: &Key) -> Cow<'_, Key> {
    if !key.labels().any(|label| label.value().contains('\\')) {
        return Cow::Borrowed(key);
    }
    let label = |label: &Label| Label::new(label.key().to_owned(), label.value().replace('\\', "\\\\"));
    Cow::Owned(Key::from_parts(key.name().to_owned(), key.labels().map(label).collect::<Vec<_>>()))
}

impl<R: Recorder> Recorder for Escaping<'_, R> {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe_counter(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe_gauge(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe_histogram(key, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.0.register_counter(&escaped(key), metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.0.register_gauge(&escaped(key), metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.0.register_histogram(&escaped(key), metadata)
    }
}
