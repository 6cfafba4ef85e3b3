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
