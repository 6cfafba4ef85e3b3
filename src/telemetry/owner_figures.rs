//! The exported figures of a pool or another owner.

use super::sample::{Labels, Sample, Value};
use crate::figures::{Figure, FigureKind, FigureLabel, Group};
use rustc_hash::{FxHashMap, FxHashSet};

/// The exported figures of an [`Owner`](super::Owner) at one moment.
#[derive(Debug, Clone, Default)]
pub struct OwnerFigures {
    rows: Vec<Row>,
    labels: Vec<String>,
    /// The labels of the row that describes the owner.
    info: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    figure: &'static Figure,
    /// The place of the value of the figure's own label, if it has one, among the labels.
    label: usize,
    /// What the name has behind that of the metric.
    suffix: &'static str,
    value: Value,
}

/// The place of no label.
const UNLABELLED: usize = usize::MAX;

/// The place of the labels that describe the owner.
const INFO: usize = usize::MAX - 1;

impl Row {
    /// The row of an owner that has ended and holds nothing.
    fn close(&mut self) {
        if matches!(self.figure.kind, FigureKind::Gauge | FigureKind::Age) {
            self.value = Value::Gauge(0.0);
        }
    }
}

impl OwnerFigures {
    /// Returns the figures of a group.
    #[must_use]
    pub fn of(group: &impl Group) -> Self {
        // A pool has about 100.
        let mut all = Self { rows: Vec::with_capacity(128), labels: Vec::new(), info: Vec::new() };
        all.add("", group);
        all
    }

    /// Adds the figures of a group. `label` is the value of their own label: [`FigureLabel::Each`].
    ///
    /// [`FigureLabel::Each`]: crate::figures::FigureLabel::Each
    pub fn add(&mut self, label: &str, group: &impl Group) {
        let label = self.add_label(label);
        // Of a histogram, the counts so far: Prometheus's counts are of all times up to the bound.
        let mut below = 0;
        group.visit(&mut |figure, value| {
            let Some(mut value) = Value::of(figure, value) else { return };
            let suffix = figure.series_suffix();
            if suffix == "_bucket"
                && let Value::Count(count) = &mut value
            {
                *count += below;
                below = *count;
            }
            self.rows.push(Row { figure, label, suffix, value });
            if suffix == "_sum" {
                let value = Value::Count(std::mem::take(&mut below));
                self.rows.push(Row { figure, label, suffix: "_count", value });
            }
        });
    }

    /// Adds one figure without a label.
    pub(super) fn push(&mut self, figure: &'static Figure, value: Value) {
        self.rows.push(Row { figure, label: UNLABELLED, suffix: "", value });
    }

    /// Adds the figure that describes the owner, with labels that say how.
    pub(super) fn describe(&mut self, figure: &'static Figure, info: Vec<(&'static str, String)>) {
        self.info = info;
        self.rows.push(Row { figure, label: INFO, suffix: "", value: Value::Gauge(1.0) });
    }

    fn add_label(&mut self, label: &str) -> usize {
        if label.is_empty() {
            return UNLABELLED;
        }
        self.labels.push(label.to_owned());
        self.labels.len() - 1
    }

    fn label_of(&self, row: &Row) -> &str {
        self.labels.get(row.label).map_or("", String::as_str)
    }

    fn key(&self, row: &Row) -> (&'static str, &'static str, &str) {
        (row.figure.name, row.suffix, self.label_of(row))
    }

    /// Returns these figures, with counts that continue those of an earlier owner of the series.
    #[must_use]
    pub(super) fn counting_on(mut self, before: &Self) -> Self {
        let places: FxHashMap<_, _> =
            self.rows.iter().enumerate().map(|(place, row)| (self.key(row), place)).collect();
        let found: Vec<_> = before.rows.iter().map(|row| places.get(&before.key(row)).copied()).collect();
        for (row, place) in before.rows.iter().zip(found) {
            match (place.map(|place| &mut self.rows[place].value), row.value) {
                (Some(Value::Count(count)), Value::Count(earlier))
                | (Some(Value::Time(count)), Value::Time(earlier)) => *count = count.saturating_add(earlier),
                (Some(_), _) => {}
                (None, _) if row.label == INFO => {}
                (None, _) => {
                    let mut row = Row { label: self.add_label(before.label_of(row)), ..*row };
                    row.close();
                    self.rows.push(row);
                }
            }
        }
        self
    }

    /// Returns the same counts, of an owner that has ended and holds nothing.
    #[must_use]
    pub(super) fn closed(mut self) -> Self {
        self.rows.iter_mut().for_each(Row::close);
        self
    }

    pub(super) fn samples(&self) -> impl Iterator<Item = Sample<'_>> {
        self.rows.iter().map(|row| self.sample(row, row.value))
    }

    /// Returns a sample (NaN) of each gauge of `before` that is missing here, because its value is unknown now.
    pub(super) fn forgotten<'a>(&self, before: &'a Self) -> impl Iterator<Item = Sample<'a>> + use<'a> {
        let known: FxHashSet<_> = self.rows.iter().map(|row| self.key(row)).collect();
        let forgotten: Vec<_> = before.rows.iter().filter(|row| !known.contains(&before.key(row))).collect();
        let is_gauge = |row: &&Row| matches!(row.value, Value::Gauge(_));
        forgotten.into_iter().filter(is_gauge).map(|row| before.sample(row, Value::Gauge(f64::NAN)))
    }

    fn sample(&self, row: &Row, value: Value) -> Sample<'_> {
        let Row { figure, suffix, .. } = *row;
        let labels = match figure.label {
            _ if row.label == INFO => self.info.iter().map(|(name, value)| (*name, value.as_str())).collect(),
            FigureLabel::Split(_, name, _) => Labels::from_slice(&[(name, figure.short)]),
            FigureLabel::Histogram(..) if suffix == "_bucket" => Labels::from_slice(&[("le", figure.short)]),
            FigureLabel::Each(name) => Labels::from_slice(&[(name, self.label_of(row))]),
            FigureLabel::None | FigureLabel::Histogram(..) => Labels::new(),
        };
        Sample { figure, suffix, labels, value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::stats::outcomes::Failures;
    use crate::heap::stats::table::{BucketStats, Caps, Peaks, PoolStats};
    use crate::heap::stats::times::Waits;
    use std::time::Duration;

    /// Figures whose counts, peaks and caps are `number`, and whose gauges are `gauge`.
    fn numbered(number: u64, [peak, gauge]: [u64; 2]) -> OwnerFigures {
        let mut figures = OwnerFigures::of(&PoolStats {
            hits: number,
            live_bytes: gauge,
            peak: Peaks { live_bytes: peak, ..Peaks::default() },
            caps: Caps { limit_bytes: Some(peak), ..Caps::default() },
            failed: Failures { by_limit: number, ..Failures::default() },
            ..PoolStats::default()
        });
        figures.add("1024", &BucketStats { hits: number, idle_bytes: gauge, ..BucketStats::default() });
        figures
    }

    fn values(figures: &OwnerFigures) -> Vec<((&str, &str, &str), Value)> {
        figures.rows.iter().map(|row| (figures.key(row), row.value)).collect()
    }

    #[test]
    fn a_histogram_counts_all_times_up_to_each_bound() {
        let mut waits = Waits::default();
        for micros in [5, 10, 11, 2_000, 200_000_000] {
            waits.add(Duration::from_micros(micros));
        }
        let (figures, twice) =
            (OwnerFigures::of(&waits), OwnerFigures::of(&waits).counting_on(&OwnerFigures::of(&waits)));
        let told = |figures: &OwnerFigures| -> Vec<(String, f64)> {
            let name = |sample: &Sample<'_>| {
                let bound = sample.labels.first().map(|(_, bound)| *bound).unwrap_or_default();
                format!("{}{}", sample.suffix, bound)
            };
            let value = |value| match value {
                Value::Count(count) => count as f64,
                Value::Time(time) => time as f64,
                Value::Gauge(value) => value,
            };
            figures.samples().map(|sample| (name(&sample), value(sample.value))).collect()
        };
        let expected = [
            ("_bucket0.00001", 2.0),
            ("_bucket0.0001", 3.0),
            ("_bucket0.001", 3.0),
            ("_bucket0.01", 4.0),
            ("_bucket0.1", 4.0),
            ("_bucket1", 4.0),
            ("_bucket10", 4.0),
            ("_bucket100", 4.0),
            ("_bucket+Inf", 5.0),
            ("_sum", 200_002_026_000.0),
            ("_count", 5.0),
        ];
        assert_eq!(told(&figures), expected.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(told(&twice), expected.map(|(name, value)| (name.to_owned(), 2.0 * value)));
    }

    #[test]
    fn counts_continue_and_nothing_else_does() {
        let sum = numbered(1, [1, 1]).counting_on(&numbered(100, [100, 100]));
        assert_eq!(values(&sum), values(&numbered(101, [1, 1])));
        assert_eq!(values(&sum.closed()), values(&numbered(101, [1, 0])), "what has ended holds nothing");
        let of_earlier = OwnerFigures::default().counting_on(&numbered(100, [100, 100]));
        assert_eq!(values(&of_earlier), values(&numbered(100, [100, 0])));
    }
}
