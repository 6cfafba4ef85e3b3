//! Results as a table.

use super::row::Row;
use crate::table::table;

const COLUMNS: [&str; 8] =
    ["benchmark", "case", "allocator", "threads", "ns mean", "ns median", "ns min", "ns max"];

/// One line a row.
pub(crate) fn of(rows: &[Row]) -> String {
    let rows = rows.iter().map(|row| {
        let [mean, median, min, max] =
            [row.ns_mean, row.ns_median, row.ns_min, row.ns_max].map(|figure| format!("{figure:.1}"));
        let [case, threads] = [row.case.to_string(), row.threads.to_string()];
        [row.bench.clone(), case, row.allocator.into(), threads, mean, median, min, max]
    });
    table(Some(COLUMNS), 0..3, rows)
}
