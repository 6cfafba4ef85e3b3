//! The exported figures of a pool or another owner.

use super::sample::Value;
use crate::figures::{Figure, FigureKind, FigureLabel, Group};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// The exported figures of an [`Owner`](super::Owner) at one moment.
#[derive(Debug, Clone, Default)]
pub struct OwnerFigures(Vec<Sample>);

/// One value of one metric, without the labels of its series.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) figure: &'static Figure,
    label: OwnLabel,
    /// The suffix of the metric's name.
    pub(super) suffix: &'static str,
    pub(super) value: Value,
}

/// Labels of a sample that its figure does not name.
#[derive(Debug, Clone)]
pub(super) enum OwnLabel {
    None,
    /// The value of [`FigureLabel::Each`].
    Value(Arc<str>),
    /// Labels that describe the owner.
    Info(Arc<[(&'static str, String)]>),
}

impl Sample {
    /// The sample of an owner that has ended and holds nothing.
    fn close(&mut self) {
        if matches!(self.figure.kind, FigureKind::Gauge | FigureKind::Age) {
            self.value = Value::Gauge(0.0);
        }
    }

    fn key(&self) -> (&'static str, &'static str, &str) {
        let label = if let OwnLabel::Value(value) = &self.label { value } else { "" };
        (self.figure.name, self.suffix, label)
    }

    /// Returns the labels beyond those of the series.
    pub(super) fn labels(&self) -> SmallVec<[(&'static str, &str); 1]> {
        match (&self.label, self.figure.label) {
            (OwnLabel::Info(info), _) => info.iter().map(|(name, value)| (*name, value.as_str())).collect(),
            (_, FigureLabel::Split(_, name, _)) => smallvec![(name, self.figure.short)],
            (_, FigureLabel::Histogram(..)) if self.suffix == "_bucket" => {
                smallvec![("le", self.figure.short)]
            }
            (OwnLabel::Value(value), FigureLabel::Each(name)) => smallvec![(name, &**value)],
            (OwnLabel::None, FigureLabel::Each(name)) => smallvec![(name, "")],
            (_, FigureLabel::None | FigureLabel::Histogram(..)) => SmallVec::new(),
        }
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
            self.0.push(Sample { figure, label: label.clone(), suffix, value });
            if suffix == "_sum" {
                let value = Value::Count(std::mem::take(&mut below));
                self.0.push(Sample { figure, label: label.clone(), suffix: "_count", value });
            }
        });
    }

    /// Adds one figure.
    pub(super) fn push(&mut self, figure: &'static Figure, label: OwnLabel, value: Value) {
        self.0.push(Sample { figure, label, suffix: "", value });
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
        self.0.iter_mut().for_each(Sample::close);
        self
    }

    pub(super) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.0.iter()
    }

    /// Returns a sample (NaN) of each gauge of `before` that is missing here, because its value is unknown now.
    pub(super) fn forgotten(&self, before: &Self) -> Vec<Sample> {
        let known: FxHashSet<_> = self.0.iter().map(Sample::key).collect();
        let is_forgotten = |of: &&Sample| matches!(of.value, Value::Gauge(_)) && !known.contains(&of.key());
        let forgotten = before.0.iter().filter(is_forgotten);
        forgotten.map(|of| Sample { value: Value::Gauge(f64::NAN), ..of.clone() }).collect()
    }
}
