//! Results of passes as a table.

use super::human;
use super::row::Row;
use comfy_table::{CellAlignment, Table, presets};

const COLUMNS: [&str; 13] = [
    "trace",
    "classes",
    "pass",
    "ops",
    "ns/op",
    "requested",
    "live",
    "held",
    "reserved",
    "live/req.",
    "held/req.",
    "hit rate",
    "driver calls",
];

/// How many columns, from the left, hold words.
const WORDS: usize = 3;

/// One line a pass. Sizes are peaks; ratios are over the bytes asked for.
pub(crate) fn of(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(COLUMNS);
    for row in rows {
        let ratio =
            |bytes| row.over_requested(bytes).map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
        table.add_row([
            row.trace.clone(),
            row.size_classes.clone(),
            row.pass.into(),
            row.ops.to_string(),
            format!("{:.1}", row.ns_per_op),
            human(row.peak_requested),
            human(row.peak_live),
            human(row.peak_held),
            human(row.peak_reserved),
            ratio(row.peak_live),
            ratio(row.peak_held),
            format!("{:.1} %", 100.0 * row.hit_rate),
            row.driver_calls.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(WORDS) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
