//! The result of one pass as a line of JSON.

use crate::table::ratio;
use serde::Serialize;
use vrampool::{Backend, Pool, Source};
use vrampool_trace::{Pass, Trace};

/// One pass. The names and their order are those of the JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) trace: String,
    pub(crate) backend: &'static str,
    pub(crate) size_classes: String,
    pub(crate) pass: &'static str,
    /// Bytes that the new pool had reserved; unset if 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) initial_bytes: Option<u64>,
    pub(crate) ops: u64,
    pub(crate) ns_per_op: f64,
    pub(crate) peak_requested: u64,
    pub(crate) peak_live: u64,
    pub(crate) peak_held: u64,
    pub(crate) peak_reserved: u64,
    pub(crate) peak_needed: u64,
    pub(crate) hit_rate: f64,
    pub(crate) bucket_hit_rate: f64,
    pub(crate) driver_calls: u64,
    /// Only of pools whose source is virtual: the time of its calls, nanoseconds, and waits between streams,
    /// which are not among the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) driver_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stream_waits: Option<u64>,
    /// Waits for memory that another stream used before.
    pub(crate) reuse_waits: u64,
    /// Only of passes that wrote what they got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) corrupt_bytes: Option<u64>,
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

    /// Returns the ratio of peak bytes to the peak of requested bytes.
    pub(crate) fn over_requested(&self, bytes: u64) -> Option<f64> {
        ratio(bytes, self.peak_requested)
    }

    /// Returns the ratio of the peak of reserved bytes to the peak of needed bytes.
    pub(crate) fn reserved_over_needed(&self) -> Option<f64> {
        ratio(self.peak_reserved, self.peak_needed)
    }
}
