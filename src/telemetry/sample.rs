//! The value of a figure on its way to a recorder or into a scrape's answer.

use crate::figures::{Figure, FigureKind, FigureValue};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Count(u64),
    /// Nanoseconds that only grow.
    Time(u64),
    Gauge(f64),
}

impl Value {
    /// Returns the exported value; `None` for a figure that is not exported.
    pub(super) fn of(figure: &Figure, value: FigureValue) -> Option<Self> {
        let value = match (figure.kind, value) {
            (_, FigureValue::Text(_)) | (FigureKind::Moment, FigureValue::Number(0)) => return None,
            (FigureKind::Counter, FigureValue::Number(number)) => Self::Count(number),
            (FigureKind::Time, FigureValue::Number(number)) => Self::Time(number),
            (FigureKind::Age, FigureValue::Number(number)) => Self::Gauge(seconds(number)),
            (_, FigureValue::Number(number)) => Self::Gauge(number as f64),
            (_, FigureValue::Cap(cap)) => Self::Gauge(cap.map_or(f64::INFINITY, |cap| cap as f64)),
        };
        figure.is_exported().then_some(value)
    }
}

/// Nanoseconds in seconds.
pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
