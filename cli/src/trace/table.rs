//! The contents of a trace as tables.

use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};
use vrampool_trace::{SizeRange, Summary};

/// Characters of the longest bar.
const BAR: f64 = 30.0;

/// One line a figure.
pub(crate) fn of_summary(summary: &Summary) -> Table {
    let bytes = |bytes: u64| ByteSize(bytes).to_string();
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(["trace", &summary.trace]).add_rows([
        ["events", &summary.events.to_string()],
        ["allocations", &summary.allocations.to_string()],
        ["frees", &summary.frees.to_string()],
        ["never freed", &summary.never_freed.to_string()],
        ["streams", &summary.streams.to_string()],
        ["distinct sizes", &summary.distinct_sizes.to_string()],
        ["requested in all", &bytes(summary.requested_bytes)],
        ["peak requested", &bytes(summary.peak_requested_bytes)],
        ["largest", &bytes(summary.largest_bytes)],
        ["duration", &format!("{:?}", summary.duration)],
    ]);
    right(table, 1..2)
}

/// One line a range of sizes.
pub(crate) fn of_sizes(sizes: &[SizeRange]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header([
        "from",
        "to",
        "allocations",
        "bytes",
        "share",
        "",
    ]);
    let most = sizes.iter().map(|row| row.share).fold(0.0, f64::max);
    for row in sizes {
        table.add_row([
            ByteSize(row.from).to_string(),
            ByteSize(row.to).to_string(),
            row.allocations.to_string(),
            ByteSize(row.bytes).to_string(),
            format!("{:.1} %", 100.0 * row.share),
            "█".repeat((BAR * row.share / most).ceil() as usize),
        ]);
    }
    right(table, 0..5)
}

/// Those columns on the right, the rest on the left.
fn right(mut table: Table, columns: std::ops::Range<usize>) -> Table {
    for (_, column) in table.column_iter_mut().enumerate().filter(|(place, _)| columns.contains(place)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
