//! The text that `top` shows: a table, figures beyond their thresholds, and exporters that cannot be read.

use super::exporter::Exporter;
use super::figures::{Level, Row};
use crate::table::{human, or_none, percent, table_within};
use clap::ValueEnum;
use std::cmp::Ordering;

/// Columns of the table. Terminals with less than 100 and 120 columns show the first 8 and 10.
const COLUMNS: [&str; 13] = [
    "pool", "hits", "live", "held", "reserved", "of limit", "req/s", "wait/s", "bucket", "calls/s",
    "rungs/s", "waiting", "failed",
];

/// The order of pools, the highest first; names and hit rates from the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    Reserved,
    Live,
    Requests,
    HitRate,
    Name,
}

/// The displayed selection.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) sort: Sort,
    /// A part of the names or addresses of the pools to show.
    pub(super) filter: String,
    /// Whether buckets and children have rows.
    pub(super) parts: bool,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Of(Level),
    Old,
}

/// Neither coloured nor old.
pub(super) const PLAIN: Look = Look::Of(Level::Green);

impl Sort {
    pub(super) fn next(self) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|sort| *sort == self).unwrap_or_default();
        all[(at + 1) % all.len()]
    }

    fn compare(self, one: &Row, other: &Row) -> Ordering {
        let number = |row: &Row| match self {
            Self::Reserved => row.get("reserved_bytes"),
            Self::Live => row.get("live_bytes"),
            Self::Requests => row.get("requests_rate"),
            Self::HitRate => row.get("hit_rate").map(|rate| 1.0 - rate),
            Self::Name => None,
        };
        let by_number = number(other).unwrap_or(0.0).total_cmp(&number(one).unwrap_or(0.0));
        by_number.then_with(|| (&one.key, &one.exporter).cmp(&(&other.key, &other.exporter)))
    }
}

impl View {
    /// The rows to show: pools in order, each with its parts behind it.
    pub(super) fn rows<'a>(&self, exporters: &'a [Exporter]) -> Vec<&'a Row> {
        let mut pools: Vec<Vec<&Row>> = Vec::new();
        for row in exporters.iter().flat_map(|exporter| &exporter.rows) {
            match pools.last_mut() {
                Some(pool) if row.key.part.is_some() => pool.extend(self.parts.then_some(row)),
                _ => pools.push(vec![row]),
            }
        }
        pools.retain(|pool| {
            [&pool[0].key.pool, &pool[0].exporter].iter().any(|name| name.contains(&self.filter))
        });
        pools.sort_by(|one, other| self.sort.compare(one[0], other[0]));
        pools.concat()
    }

    /// The table from the row `first` on, and figures beyond their thresholds, within `columns` and `most` lines.
    pub(super) fn lines(
        &self,
        exporters: &[Exporter],
        columns: usize,
        first: usize,
        most: usize,
    ) -> Vec<(String, Look)> {
        let all = self.rows(exporters);
        let names_exporter = exporters.len() > 1;
        let ended: Vec<_> = exporters.iter().filter(|exporter| exporter.error.is_some()).collect();
        let is_old = |row: &Row| exporters[row.at].error.is_some();
        let look = |row: &&Row| match row.levels.values().max() {
            _ if is_old(row) => Look::Old,
            level => Look::Of(*level.unwrap_or(&Level::Green)),
        };
        let mut below = vec![(String::new(), PLAIN)];
        below.extend(exporters.iter().filter_map(Exporter::left_out).map(|text| (text, PLAIN)));
        for row in all.iter().filter(|row| !is_old(row)) {
            below.extend(row.levels.iter().map(|(figure, level)| {
                let value = row.get(figure).unwrap_or_default();
                let value = if *figure == "failed_requests" { format!("{value:.0}") } else { percent(value) };
                let (colour, name) = (format!("{level:?}").to_lowercase(), figure.replace('_', " "));
                let text = format!("{colour}: {name} {value}: {} {}", row.key.pool, row.exporter);
                (text, Look::Of(*level))
            }));
        }
        below.extend(ended.iter().map(|exporter| {
            let error = exporter.error.as_deref().unwrap_or_default();
            (format!("{} ended: {error}", exporter.name), Look::Old)
        }));
        below.truncate(most / 2);
        // Two lines are the header.
        let count = most.saturating_sub(below.len() + 2);
        let rows: Vec<_> = all.into_iter().skip(first).take(count).collect();
        let text = match columns {
            ..100 => table_of::<8>(&rows, names_exporter, columns),
            100..120 => table_of::<10>(&rows, names_exporter, columns),
            _ => table_of::<13>(&rows, names_exporter, columns),
        };
        let looks = [PLAIN; 2].into_iter().chain(rows.iter().map(look));
        let mut lines: Vec<_> = text.lines().map(str::to_owned).zip(looks).collect();
        lines.extend(below);
        for (line, _) in &mut lines {
            *line = line.chars().take(columns).collect();
        }
        lines
    }
}

fn table_of<const N: usize>(rows: &[&Row], names_exporter: bool, columns: usize) -> String {
    let first = |cells: [String; COLUMNS.len()]| std::array::from_fn(|column| cells[column].clone());
    let rows =
        rows.iter().map(|row| first(cells(row, names_exporter, if N < COLUMNS.len() { 8 } else { 16 })));
    table_within::<N>(columns, Some(std::array::from_fn(|column| COLUMNS[column])), 0..1, rows)
}

/// Bytes without a decimal if it is 0, or if three digits precede it.
fn short(bytes: f64) -> String {
    let text = human(bytes as u64);
    match text.split_once('.') {
        Some((whole, rest)) if whole.len() >= 3 || rest.starts_with('0') => format!("{whole}{}", &rest[1..]),
        _ => text,
    }
}

fn cells(row: &Row, names_exporter: bool, width: usize) -> [String; COLUMNS.len()] {
    let bytes = |figure| or_none(row.get(figure), short);
    let rate = |figure| or_none(row.get(figure), |rate| format!("{rate:.0}"));
    let share = |figure| or_none(row.get(figure), |share| percent(share).replace(".0 %", " %"));
    let name = match &row.key.part {
        Some(part) => {
            format!("  {}", row.key.class.map_or_else(|| part.clone(), |class| short(class as f64)))
        }
        None if names_exporter => format!("{} {}", row.key.pool, row.exporter),
        None => row.key.pool.clone(),
    };
    let limit = row.get("limit_bytes").or(row.get("budget_bytes")).filter(|limit| *limit > 0.0);
    let bar = limit.map(|limit| {
        let end =
            |figure| (width as f64 * row.get(figure).unwrap_or_default() / limit).round().max(0.0) as usize;
        let ends = [("live_bytes", '#'), ("held_bytes", '='), ("reserved_bytes", '-')]
            .map(|(figure, letter)| (end(figure), letter));
        let letter = |at| ends.iter().find(|(end, _)| at < *end).map_or('.', |(_, letter)| *letter);
        (0..width).map(letter).collect::<String>()
    });
    [
        name,
        share("hit_rate"),
        bytes("live_bytes"),
        bytes("held_bytes"),
        bytes("reserved_bytes"),
        or_none(bar, |bar| bar),
        rate("requests_rate"),
        rate("stream_waits_rate"),
        share("bucket_hit_rate"),
        rate("driver_calls_rate"),
        rate("rungs_rate"),
        rate("waiting_requests"),
        rate("failed_requests"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::figures::Key;
    use super::*;

    #[test]
    fn an_exporter_of_another_path_ends_alone() {
        let mut exporters = ["h:1/a", "h:1/b"].map(Exporter::new);
        let key = |pool: &str| Key { pool: pool.into(), device: String::new(), class: None, part: None };
        let values = [("live_bytes", 94.0), ("limit_bytes", 100.0)].map(|(name, value)| (name.into(), value));
        for (at, pool) in ["one", "other"].into_iter().enumerate() {
            let row = Row::new((at, &exporters[at].name), &key(pool), &values.clone().into(), None);
            exporters[at].note(Ok((vec![row], 7 * at)));
        }
        exporters[1].note(Err("closed".into()));
        let view = View { sort: Sort::Name, filter: String::new(), parts: false };
        let lines = view.lines(&exporters, 80, 0, 24);
        let texts: Vec<_> = lines[5..].iter().map(|(text, _)| text.as_str()).collect();
        let left_out = "h:1: 7 more pools, buckets and children are left out";
        assert_eq!(texts, [left_out, "red: live of limit 94.0 %: one h:1", "h:1 ended: closed"]);
        assert_eq!([2, 3].map(|line: usize| lines[line].1), [Look::Of(Level::Red), Look::Old]);
    }
}
