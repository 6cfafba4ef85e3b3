//! The exported figures of a pool or another owner.

use super::sample::{Labels, Sample, Value};
use crate::figures::{Figure, FigureKind, FigureLabel, Group};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The exported figures of an [`Owner`](super::Owner) at one moment.
#[derive(Debug, Clone, Default)]
pub struct OwnerFigures(Vec<OwnerRow>);

#[derive(Debug, Clone)]
struct OwnerRow {
    figure: &'static Figure,
    label: OwnLabel,
    /// The suffix of the metric's name.
    suffix: &'static str,
    value: Value,
}

/// Labels of a row that its figure does not name.
#[derive(Debug, Clone)]
enum OwnLabel {
    None,
    /// The value of [`FigureLabel::Each`].
    Value(Arc<str>),
    /// Labels that describe the owner.
    Info(Arc<[(&'static str, String)]>),
}

impl OwnerRow {
    /// The row of an owner that has ended and holds nothing.
    fn close(&mut self) {
        if matches!(self.figure.kind, FigureKind::Gauge | FigureKind::Age) {
            self.value = Value::Gauge(0.0);
        }
    }

    fn key(&self) -> (&'static str, &'static str, &str) {
        let label = if let OwnLabel::Value(value) = &self.label { value } else { "" };
        (self.figure.name, self.suffix, label)
    }

    fn sample(&self, value: Value) -> Sample<'_> {
        let Self { figure, suffix, .. } = *self;
        let labels = match (&self.label, figure.label) {
            (OwnLabel::Info(info), _) => info.iter().map(|(name, value)| (*name, value.as_str())).collect(),
            (_, FigureLabel::Split(_, name, _)) => Labels::from_slice(&[(name, figure.short)]),
            (_, FigureLabel::Histogram(..)) if suffix == "_bucket" => {
                Labels::from_slice(&[("le", figure.short)])
            }
            (OwnLabel::Value(value), FigureLabel::Each(name)) => Labels::from_slice(&[(name, value)]),
            (OwnLabel::None, FigureLabel::Each(name)) => Labels::from_slice(&[(name, "")]),
            (_, FigureLabel::None | FigureLabel::Histogram(..)) => Labels::new(),
        };
        Sample { figure, suffix, labels, value }
    }
}

impl OwnerFigures {
    /// Returns the figures of a group.
    #[must_use]
    pub fn of(group: &impl Group) -> Self {
        // A pool has about 100.
        let mut all = Self(Vec::with_capacity(128));
        all.add("", group);
        all
    }

    /// Adds the figures of a group. `label` is the value of their own label: [`FigureLabel::Each`].
    ///
    /// [`FigureLabel::Each`]: crate::figures::FigureLabel::Each
    pub fn add(&mut self, label: &str, group: &impl Group) {
        let label = if label.is_empty() { OwnLabel::None } else { OwnLabel::Value(label.into()) };
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
            self.0.push(OwnerRow { figure, label: label.clone(), suffix, value });
            if suffix == "_sum" {
                let value = Value::Count(std::mem::take(&mut below));
                self.0.push(OwnerRow { figure, label: label.clone(), suffix: "_count", value });
            }
        });
    }

    /// Adds one figure without a label.
    pub(super) fn push(&mut self, figure: &'static Figure, value: Value) {
        self.0.push(OwnerRow { figure, label: OwnLabel::None, suffix: "", value });
    }

    /// Adds the figure that describes the owner, with labels that say how.
    pub(super) fn describe(&mut self, figure: &'static Figure, info: Arc<[(&'static str, String)]>) {
        self.0.push(OwnerRow { figure, label: OwnLabel::Info(info), suffix: "", value: Value::Gauge(1.0) });
    }

    /// Returns these figures, with counts that continue those of an earlier owner of the series.
    #[must_use]
    pub(super) fn counting_on(mut self, before: &Self) -> Self {
        let places: FxHashMap<_, _> =
            self.0.iter().enumerate().map(|(place, row)| (row.key(), place)).collect();
        let found: Vec<_> = before.0.iter().map(|row| places.get(&row.key()).copied()).collect();
        for (row, place) in before.0.iter().zip(found) {
            match (place.map(|place| &mut self.0[place].value), row.value) {
                (Some(Value::Count(count)), Value::Count(earlier))
                | (Some(Value::Time(count)), Value::Time(earlier)) => *count = count.saturating_add(earlier),
                (Some(_), _) => {}
                (None, _) if matches!(row.label, OwnLabel::Info(_)) => {}
                (None, _) => {
                    let mut row = row.clone();
                    row.close();
                    self.0.push(row);
                }
            }
        }
        self
    }

    /// Returns the same counts, of an owner that has ended and holds nothing.
    #[must_use]
    pub(super) fn closed(mut self) -> Self {
        self.0.iter_mut().for_each(OwnerRow::close);
        self
    }

    pub(super) fn samples(&self) -> impl Iterator<Item = Sample<'_>> {
        self.0.iter().map(|row| row.sample(row.value))
    }

    /// Returns a sample (NaN) of each gauge of `before` that is missing here, because its value is unknown now.
    pub(super) fn forgotten<'a>(&self, before: &'a Self) -> impl Iterator<Item = Sample<'a>> + use<'a> {
        let known: FxHashSet<_> = self.0.iter().map(OwnerRow::key).collect();
        let forgotten: Vec<_> = before.0.iter().filter(|row| !known.contains(&row.key())).collect();
        let is_gauge = |row: &&OwnerRow| matches!(row.value, Value::Gauge(_));
        forgotten.into_iter().filter(is_gauge).map(|row| row.sample(Value::Gauge(f64::NAN)))
    }
}
