//! Samples as text for Prometheus: its own format, or OpenMetrics.
//!
//! Written here because a recorder keeps every series for ever, and takes seconds for the series of thousands
//! of pools.

use super::METRICS;
use super::owner_figures::Sample;
use super::sample::{Value, seconds};
use super::series::Series;
use crate::figures::Figure;
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// A text format that a scraper may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns the format for a request with these values of the header `Accept`: OpenMetrics if it is named
    /// and no other format is preferred.
    pub(super) fn accepted<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let (mut open, mut plain) = (0.0, 0.0);
        for range in values.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let best = match parts.next() {
                Some("application/openmetrics-text") => &mut open,
                Some("text/plain" | "text/*") => &mut plain,
                _ => continue,
            };
            let mut weight = 1.0;
            let mut is_ours = true;
            for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                match key {
                    "q" => weight = value.parse().unwrap_or(0.0),
                    "version" => is_ours = matches!(value, "0.0.1" | "0.0.4" | "1.0.0"),
                    _ => {}
                }
            }
            if is_ours {
                *best = f64::max(*best, weight);
            }
        }
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }
}

/// The samples of all series so far. A metric's samples stand together, as both formats demand.
#[derive(Debug)]
pub(super) struct Text {
    format: Format,
    /// A figure of each metric, and its lines.
    metrics: Vec<(&'static Figure, String)>,
    place: FxHashMap<&'static str, usize>,
    /// The series that was added last, and its labels.
    series: Option<Series>,
    labels: String,
}

impl Text {
    pub(super) fn new(format: Format) -> Self {
        let mut metrics: Vec<_> = METRICS.iter().map(|&figure| (figure, String::new())).collect();
        metrics.dedup_by_key(|(figure, _)| figure.metric);
        let place = metrics.iter().enumerate().map(|(place, (figure, _))| (figure.metric, place)).collect();
        Self { format, metrics, place, series: None, labels: String::new() }
    }

    pub(super) fn add(&mut self, series: &Series, sample: &Sample) {
        let &Sample { figure, suffix, value, .. } = sample;
        if matches!(value, Value::Gauge(value) if value.is_nan()) {
            // Unknown values are not served.
            return;
        }
        if self.series.as_ref() != Some(series) {
            self.labels.clear();
            series.labels().into_iter().for_each(|label| push_label(&mut self.labels, label));
            self.series = Some(series.clone());
        }
        let metrics = &mut self.metrics;
        // Metrics of pools come first, others as they appear.
        let place = *self.place.entry(figure.metric).or_insert_with(|| {
            metrics.push((figure, String::new()));
            metrics.len() - 1
        });
        let lines = &mut metrics[place].1;
        lines.push_str(figure.metric);
        lines.push_str(suffix);
        lines.push('{');
        lines.push_str(&self.labels);
        sample.labels().into_iter().for_each(|label| push_label(lines, label));
        // Behind the last label's comma, which neither format wants.
        lines.pop();
        // Writing to a string cannot fail.
        let _ = match value {
            Value::Count(count) => writeln!(lines, "}} {count}"),
            Value::Time(time) => writeln!(lines, "}} {}", seconds(time)),
            Value::Gauge(f64::INFINITY) => writeln!(lines, "}} +Inf"),
            Value::Gauge(value) => writeln!(lines, "}} {value}"),
        };
    }

    pub(super) fn finish(self) -> String {
        let mut text = String::with_capacity(self.metrics.iter().map(|(_, lines)| lines.len() + 256).sum());
        for (figure, lines) in &self.metrics {
            if lines.is_empty() {
                continue;
            }
            let name = match self.format {
                Format::Prometheus => figure.metric,
                Format::OpenMetrics => figure.metric.trim_end_matches("_total"),
            };
            let (help, kind) = (figure.metric_help(), figure.metric_type());
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            let unit = figure.metric_unit();
            if self.format == Format::OpenMetrics
                && name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_'))
            {
                let _ = writeln!(text, "# UNIT {name} {unit}");
            }
            text.push_str(lines);
        }
        if self.format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

/// The label, escaped, and a comma.
fn push_label(to: &mut String, (name, value): (&str, &str)) {
    to.push_str(name);
    to.push_str("=\"");
    for character in value.chars() {
        match character {
            '\\' => to.push_str("\\\\"),
            '"' => to.push_str("\\\""),
            '\n' => to.push_str("\\n"),
            _ => to.push(character),
        }
    }
    to.push_str("\",");
}
