//! The contents of a trace as tables.

use crate::table::{human, percent, table};
use vrampool_trace::{SizeRange, Summary};

/// Characters of the longest bar.
const BAR: f64 = 24.0;

/// One line a figure.
pub(crate) fn of_summary(summary: &Summary) -> String {
    let rows = [
        ("events", summary.events.to_string()),
        ("allocations", summary.allocations.to_string()),
        ("frees", summary.frees.to_string()),
        ("never freed", summary.never_freed.to_string()),
        ("dropped by the recording", summary.dropped.to_string()),
        ("streams", summary.streams.to_string()),
        ("distinct sizes", summary.distinct_sizes.to_string()),
        ("requested in all", human(summary.requested_bytes)),
        ("peak requested", human(summary.peak_requested_bytes)),
        ("largest", human(summary.largest_bytes)),
        ("duration", format!("{:?}", summary.duration)),
    ];
    table(Some(["trace", &summary.trace]), 0..1, rows.map(|(name, figure)| [name.into(), figure]))
}

/// One line a range of sizes.
pub(crate) fn of_sizes(sizes: &[SizeRange]) -> String {
    let most = sizes.iter().map(|row| row.share).fold(0.0, f64::max);
    let rows = sizes.iter().map(|row| {
        let [from, to, bytes] = [row.from, row.to, row.bytes].map(human);
        let bar = "#".repeat((BAR * row.share / most).ceil() as usize);
        [from, to, row.allocations.to_string(), bytes, percent(row.share), bar]
    });
    table(Some(["from", "to", "allocations", "bytes", "share", ""]), 5..6, rows)
}
