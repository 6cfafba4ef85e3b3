//! The result of a sweep as text and as JSON.

use serde::Serialize;
use std::time::Duration;
use vrampool_broker::{RunReport, Stage};
use vrampool_cli::table::{human, table};

/// One sweep, or one with as many streams as were asked for and one with a single one.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) backend: &'static str,
    pub(crate) device: String,
    pub(crate) runs: u64,
    /// Runs that an interrupt left.
    pub(crate) unsolved: u64,
    pub(crate) samples: u64,
    pub(crate) steps: u32,
    /// Bytes of the batch, on the device if it fitted.
    pub(crate) batch_bytes: u64,
    /// Bytes that it may hold there.
    pub(crate) share_bytes: u64,
    /// The most that it held.
    pub(crate) peak_held: u64,
    pub(crate) host_arrays: &'static str,
    pub(crate) streams: usize,
    pub(crate) chunks: u64,
    pub(crate) chunk_len: u64,
    /// How often others needed memory.
    pub(crate) shrinks: u64,
    pub(crate) bytes_copied: u64,
    pub(crate) peak_staging: u64,
    pub(crate) seconds: f64,
    pub(crate) runs_per_second: f64,
    pub(crate) worst_error: f32,
    #[serde(flatten)]
    pub(crate) comparison: Option<Comparison>,
}

/// Against a single stream, in the same process.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Comparison {
    pub(crate) single_stream_seconds: f64,
    /// The copy time of a single stream, with a wait after each operation; the compute time follows.
    pub(crate) copy_seconds: f64,
    pub(crate) compute_seconds: f64,
    pub(crate) speedup: f64,
    /// The part of the shorter of both that took no time of its own.
    pub(crate) hidden: f64,
}

impl Comparison {
    /// `timed` and `single` on one stream, `concurrent` on several.
    pub(crate) fn new(timed: &RunReport, single: &RunReport, concurrent: &RunReport) -> Self {
        let sum = |stages: &[Stage]| -> f64 {
            let spans = timed.spans.iter().filter(|span| stages.contains(&span.stage));
            spans.map(|span| (span.end - span.start).as_secs_f64()).sum()
        };
        let (copy, compute) = (sum(&[Stage::Upload, Stage::Download]), sum(&[Stage::Compute]));
        let [one, several] = [single, concurrent].map(|report| report.elapsed.as_secs_f64());
        Self {
            single_stream_seconds: one,
            copy_seconds: copy,
            compute_seconds: compute,
            speedup: one / several,
            // Several streams also copy at the same time: no more than all of it is hidden.
            hidden: ((one - several) / copy.min(compute)).clamp(0.0, 1.0),
        }
    }
}

impl Report {
    pub(crate) fn table(&self) -> String {
        let seconds = |seconds: f64| format!("{:.1?}", Duration::from_secs_f64(seconds.max(0.0)));
        let mut rows = vec![
            ["device".into(), self.device.clone()],
            ["runs".into(), format!("{} of {} samples", self.runs, self.samples)],
            ["batch".into(), human(self.batch_bytes)],
            ["share".into(), human(self.share_bytes)],
            ["held at most".into(), human(self.peak_held)],
            ["host arrays".into(), self.host_arrays.into()],
            ["streams".into(), self.streams.to_string()],
            ["chunks".into(), format!("{} of {} runs", self.chunks, self.chunk_len)],
            ["copied".into(), human(self.bytes_copied)],
            ["time".into(), seconds(self.seconds)],
            ["runs a second".into(), format!("{:.0}", self.runs_per_second)],
            ["worst error".into(), format!("{:.1e}", self.worst_error)],
        ];
        if self.unsolved > 0 {
            rows.insert(2, ["interrupted before".into(), format!("{} runs", self.unsolved)]);
        }
        if self.shrinks > 0 {
            rows.push(["made finer".into(), format!("{} times: others needed memory", self.shrinks)]);
        }
        if let Some(comparison) = &self.comparison {
            rows.push(["on one stream".into(), seconds(comparison.single_stream_seconds)]);
            rows.push(["of which copies".into(), seconds(comparison.copy_seconds)]);
            rows.push(["of which work".into(), seconds(comparison.compute_seconds)]);
            rows.push(["faster by".into(), format!("{:.2}", comparison.speedup)]);
            rows.push(["hidden".into(), format!("{:.0} % of the shorter", 100.0 * comparison.hidden)]);
        }
        table(None, 0..1, rows)
    }
}
