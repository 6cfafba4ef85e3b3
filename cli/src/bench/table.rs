//! Results as a table.

use super::row::Row;
use crate::table::table;

const COLUMNS: [&str; 6] = ["benchmark", "case", "allocator", "threads", "ns median", "ns min"];

/// One line a row.
pub(crate) fn of(rows: &[Row]) -> String {
    let rows = rows.iter().map(|row| {
        let [median, min] = [row.figures.ns_median, row.figures.ns_min].map(|figure| format!("{figure:.1}"));
        let [case, threads] = [row.case.clone(), row.threads.to_string()];
        [row.bench.clone(), case, row.allocator.into(), threads, median, min]
    });
    table(Some(COLUMNS), 0..3, rows)
}
