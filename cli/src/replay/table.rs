//! Results of passes as tables.

use super::row::Row;
use crate::table::{human, or_none, percent, table};

/// The rates of each pass, then its times and bytes, a line each. Sizes are peaks, and ratios are of peaks.
pub(crate) fn of(rows: &[Row]) -> String {
    let rates = rows.iter().map(|row| {
        [
            row.trace.clone(),
            row.pass.into(),
            or_none(row.over_requested(row.peak_reserved), |ratio| format!("{ratio:.3}")),
            or_none(row.reserved_over_needed(), |ratio| format!("{ratio:.2}")),
            percent(row.hit_rate),
            percent(row.bucket_hit_rate),
            row.driver_calls.to_string(),
        ]
    });
    let columns = ["trace", "pass", "reserved/requested", "reserved/needed", "hit rate", "buckets", "calls"];
    let rates = table(Some(columns), 0..2, rates);
    let bytes = rows.iter().map(|row| {
        let [requested, live, held, reserved] =
            [row.peak_requested, row.peak_live, row.peak_held, row.peak_reserved].map(human);
        let [ops, time] = [row.ops.to_string(), format!("{:.1}", row.ns_per_op)];
        [row.trace.clone(), row.pass.into(), ops, time, requested, live, held, reserved]
    });
    let columns = ["trace", "pass", "ops", "ns/op", "requested", "live", "held", "reserved"];
    let bytes = table(Some(columns), 0..2, bytes);
    let classes = rows.first().map_or("", |row| &row.size_classes);
    format!(
        "{rates}\n\n{bytes}\n\n\
         Ratios are of peaks; needed bytes are in use. Calls: of the driver.\nSize classes: {classes}"
    )
}
