//! The contents of a trace as lines of JSON.

use crate::stdout;
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
    stdout::print(serde_json::to_string(&TraceRow::from(summary))?)?;
    sizes.iter().try_for_each(|range| stdout::print(serde_json::to_string(&SizesRow::from(range))?))
}

impl<'a> From<&'a Summary> for TraceRow<'a> {
    fn from(summary: &'a Summary) -> Self {
        Self {
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
        }
    }
}

impl From<&SizeRange> for SizesRow {
    fn from(range: &SizeRange) -> Self {
        Self {
            row: "sizes",
            from: range.from,
            to: range.to,
            allocations: range.allocations,
            bytes: range.bytes,
            share: range.share,
        }
    }
}
