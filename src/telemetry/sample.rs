//! One figure on its way to a recorder or into a scrape's answer.

use crate::figures::{Figure, FigureKind, FigureLabel, FigureValue};

/// One value of one metric, without the labels of its series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample<'a> {
    pub(super) figure: &'static Figure,
    /// A label beyond those of the series.
    pub(super) label: Option<(&'static str, &'a str)>,
    pub(super) value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Count(u64),
    Gauge(f64),
}

impl Value {
    /// Returns the exported value; `None` for a figure that is not exported.
    pub(super) fn of(figure: &Figure, value: FigureValue) -> Option<Self> {
        let value = match value {
            FigureValue::Text(_) => return None,
            FigureValue::Number(number) if figure.kind == FigureKind::Counter => Self::Count(number),
            FigureValue::Number(number) => Self::Gauge(number as f64),
            FigureValue::Cap(cap) => Self::Gauge(cap.map_or(f64::INFINITY, |cap| cap as f64)),
        };
        figure.is_exported().then_some(value)
    }
}

impl<'a> Sample<'a> {
    /// `label` is the value of the figure's own label, if each owner of the figure has a series.
    pub(super) fn new(figure: &'static Figure, label: &'a str, value: Value) -> Self {
        let label = if let FigureLabel::Split(..) = figure.label { figure.short } else { label };
        Self { figure, label: figure.metric_label().map(|name| (name, label)), value }
    }
}
