//! Results as a table.

use super::row::Row;
use comfy_table::{CellAlignment, Table, presets};

const COLUMNS: [&str; 8] =
    ["benchmark", "case", "allocator", "threads", "ns mean", "ns median", "ns min", "ns max"];

/// How many columns, from the left, hold words.
const WORDS: usize = 3;

/// One line a row.
pub(crate) fn of(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(COLUMNS);
    for row in rows {
        let nanoseconds = |figure: f64| format!("{figure:.1}");
        table.add_row([
            row.bench.clone(),
            row.case.to_string(),
            row.allocator.into(),
            row.threads.to_string(),
            nanoseconds(row.ns_mean),
            nanoseconds(row.ns_median),
            nanoseconds(row.ns_min),
            nanoseconds(row.ns_max),
        ]);
    }
    for column in table.column_iter_mut().skip(WORDS) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
