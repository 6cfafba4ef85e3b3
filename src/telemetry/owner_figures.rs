//! The exported figures of a pool or another owner.

use super::sample::{Sample, Value};
use crate::figures::{Figure, FigureKind, Group};
use rustc_hash::FxHashMap;

/// The exported figures of an [`Owner`](super::Owner) at one moment.
#[derive(Debug, Clone, Default)]
pub struct OwnerFigures {
    rows: Vec<Row>,
    labels: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    figure: &'static Figure,
    /// The place of the value of the figure's own label, if it has one, among the labels.
    label: usize,
    value: Value,
}

/// The place of no label.
const UNLABELLED: usize = usize::MAX;

impl Row {
    /// The row of an owner that has ended and holds nothing.
    fn close(&mut self) {
        if self.figure.kind == FigureKind::Gauge {
            self.value = Value::Gauge(0.0);
        }
    }
}

impl OwnerFigures {
    /// Returns the figures of a group.
    #[must_use]
    pub fn of(group: &impl Group) -> Self {
        // A pool has about 70.
        let mut all = Self { rows: Vec::with_capacity(80), labels: Vec::new() };
        all.add("", group);
        all
    }

    /// Adds the figures of a group. `label` is the value of their own label: [`FigureLabel::Each`].
    ///
    /// [`FigureLabel::Each`]: crate::figures::FigureLabel::Each
    pub fn add(&mut self, label: &str, group: &impl Group) {
        let label = self.add_label(label);
        group.visit(&mut |figure, value| {
            if let Some(value) = Value::of(figure, value) {
                self.rows.push(Row { figure, label, value });
            }
        });
    }

    /// Adds one figure, as [`add`](Self::add).
    pub(super) fn push(&mut self, label: &str, figure: &'static Figure, value: Value) {
        let label = self.add_label(label);
        self.rows.push(Row { figure, label, value });
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

    fn key(&self, row: &Row) -> (&'static str, &str) {
        (row.figure.name, self.label_of(row))
    }

    /// Returns these figures, with counts that continue those of an earlier owner of the series.
    #[must_use]
    pub(super) fn counting_on(mut self, before: &Self) -> Self {
        let places: FxHashMap<_, _> =
            self.rows.iter().enumerate().map(|(place, row)| (self.key(row), place)).collect();
        let found: Vec<_> = before.rows.iter().map(|row| places.get(&before.key(row)).copied()).collect();
        for (row, place) in before.rows.iter().zip(found) {
            match (place.map(|place| &mut self.rows[place].value), row.value) {
                (Some(Value::Count(count)), Value::Count(earlier)) => *count = count.saturating_add(earlier),
                (Some(_), _) => {}
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
        self.rows.iter().map(|row| Sample::new(row.figure, self.label_of(row), row.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::stats::table::{BucketStats, Caps, Failures, Peaks, PoolStats};

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

    fn values(figures: &OwnerFigures) -> Vec<((&str, &str), Value)> {
        figures.rows.iter().map(|row| (figures.key(row), row.value)).collect()
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
