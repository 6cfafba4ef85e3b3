//! The result of one pass as a line of JSON, and results as tables.

use crate::table::{human, or_none, percent, ratio, table};
use serde::Serialize;
use vrampool::{Backend, Pool, Source};
use vrampool_trace::{Pass, Trace};

/// One pass. The names and their order are those of the JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    trace: String,
    backend: &'static str,
    size_classes: String,
    pass: &'static str,
    /// Bytes that the new pool had reserved; unset if 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_bytes: Option<u64>,
    ops: u64,
    ns_per_op: f64,
    peak_requested: u64,
    peak_live: u64,
    peak_held: u64,
    peak_reserved: u64,
    peak_needed: u64,
    hit_rate: f64,
    bucket_hit_rate: f64,
    driver_calls: u64,
    /// Only of pools whose source is virtual: the time of its calls, nanoseconds, and waits between streams,
    /// which are not among the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    driver_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_waits: Option<u64>,
    /// Waits for memory that another stream used before.
    reuse_waits: u64,
    /// Only of passes that wrote what they got.
    #[serde(skip_serializing_if = "Option::is_none")]
    corrupt_bytes: Option<u64>,
}

impl Row {
    pub(crate) fn new<B: Backend>(trace: &Trace, pool: &Pool<B>, initial_bytes: u64, pass: &Pass) -> Self {
        let is_virtual = pool.source() == Source::Virtual;
        let nanoseconds = u64::try_from(pass.mapping_time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            trace: trace.name().into(),
            backend: pool.device().id().backend,
            size_classes: pool.size_classes().to_string(),
            pass: if pass.is_cold() { "cold" } else { "warm" },
            initial_bytes: (initial_bytes > 0).then_some(initial_bytes),
            ops: pass.ops,
            ns_per_op: pass.ns_per_op(),
            peak_requested: pass.peak_requested_bytes,
            peak_live: pass.peak_live_bytes,
            peak_held: pass.peak_held_bytes,
            peak_reserved: pass.peak_reserved_bytes,
            peak_needed: pass.peak_needed_bytes,
            hit_rate: pass.hit_rate,
            bucket_hit_rate: pass.bucket_hit_rate,
            driver_calls: pass.driver_calls,
            driver_ns: is_virtual.then_some(nanoseconds),
            stream_waits: is_virtual.then_some(pass.stream_waits),
            reuse_waits: pass.reuse_waits,
            corrupt_bytes: pass.corrupt_bytes,
        }
    }
}

/// The rates of each pass, then its times and bytes, a line each. Sizes are peaks, and ratios are of peaks.
pub(crate) fn table_of(rows: &[Row]) -> String {
    let rates = rows.iter().map(|row| {
        [
            row.trace.clone(),
            row.pass.into(),
            or_none(ratio(row.peak_reserved, row.peak_requested), |ratio| format!("{ratio:.3}")),
            or_none(ratio(row.peak_reserved, row.peak_needed), |ratio| format!("{ratio:.2}")),
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
