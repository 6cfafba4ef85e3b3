//! Results of passes as a table.

use super::row::Row;
use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};

const COLUMNS: [&str; 14] = [
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
    "reserved/req.",
    "res./needed",
    "hit rate",
    "driver calls",
];

/// How many columns, from the left, hold words.
const WORDS: usize = 3;

/// Returns a table with one line for each pass. Sizes are peaks, and ratios are of peaks.
pub(crate) fn of(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(COLUMNS);
    for row in rows {
        let shown = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
        let over_requested = |bytes| shown(row.over_requested(bytes));
        let reserved_over_requested = row.over_requested(row.peak_reserved);
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
            over_requested(row.peak_live),
            reserved_over_requested.map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}")),
            shown(row.reserved_over_needed()),
            format!("{:.1} %", 100.0 * row.hit_rate),
            row.driver_calls.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(WORDS) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Bytes as people read them.
fn human(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}
