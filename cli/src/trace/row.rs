//! The contents of a trace as lines of JSON.

use crate::stdout::print_json;
use serde::Serialize;
use std::error::Error;
use vrampool_trace::{SizeRange, Summary};

/// The line of the whole trace.
#[derive(Debug, Clone, Serialize)]
struct TraceRow<'a> {
    row: &'static str,
    trace: &'a str,
    events: u64,
    allocations: u64,
    frees: u64,
    never_freed: u64,
    dropped: u64,
    streams: usize,
    distinct_sizes: usize,
    requested: u64,
    peak_requested: u64,
    largest: u64,
    duration_us: u64,
}

/// The line of one range of sizes.
#[derive(Debug, Clone, Serialize)]
struct SizesRow {
    row: &'static str,
    from: u64,
    to: u64,
    allocations: u64,
    bytes: u64,
    share: f64,
}

/// Prints the line of the trace, then the line of each range of sizes.
pub(crate) fn print(summary: &Summary, sizes: &[SizeRange]) -> Result<(), Box<dyn Error>> {
    print_json(&TraceRow {
        row: "trace",
        trace: &summary.trace,
        events: summary.events,
        allocations: summary.allocations,
        frees: summary.frees,
        never_freed: summary.never_freed,
        dropped: summary.dropped,
        streams: summary.streams,
        distinct_sizes: summary.distinct_sizes,
        requested: summary.requested_bytes,
        peak_requested: summary.peak_requested_bytes,
        largest: summary.largest_bytes,
        duration_us: u64::try_from(summary.duration.as_micros()).unwrap_or(u64::MAX),
    })?;
    sizes.iter().try_for_each(|&SizeRange { from, to, allocations, bytes, share, .. }| {
        print_json(&SizesRow { row: "sizes", from, to, allocations, bytes, share })
    })
}
