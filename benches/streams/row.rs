//! Lines of JSON.

use crate::case::Case;
use crate::measurement::Measurement;
use crate::options::Amount;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Row {
    backend: &'static str,
    case: Case,
    streams: usize,
    amount: Amount,
    measured: Measurement,
    /// How much more work one pool does in a second than on one stream.
    speed_up: Option<f64>,
    /// The same with a pool for each stream.
    speed_up_each: Option<f64>,
    pub(crate) wrong_bytes: u64,
}

impl Row {
    pub(crate) fn new(
        backend: &'static str,
        case: &Case,
        streams: usize,
        amount: Amount,
        alone: Option<Duration>,
        measured: Measurement,
    ) -> Self {
        let speed_up =
            |time: Duration| Some(alone?.as_secs_f64() * case.scene.work(streams) / time.as_secs_f64());
        Self {
            backend,
            case: case.clone(),
            streams,
            amount,
            measured,
            speed_up: speed_up(measured.one.time),
            speed_up_each: speed_up(measured.each.time),
            wrong_bytes: measured.wrong_bytes,
        }
    }

    /// How many times as long one pool takes as a pool for each stream.
    fn ratio(&self) -> f64 {
        self.measured.one.time.as_secs_f64() / self.measured.each.time.as_secs_f64()
    }

    pub(crate) fn json(&self) -> String {
        let Self { case, measured: Measurement { one, each, .. }, .. } = self;
        serde_json::json!({
            "backend": self.backend,
            "scene": case.scene.name(),
            "block_bytes": case.block_bytes,
            "source": case.source.name(),
            "size_classes": case.classes.to_string(),
            "streams": self.streams,
            "kernel_microseconds": self.amount.length.as_micros() as u64,
            "kernels": self.amount.kernels,
            "rounds": self.amount.rounds,
            "one_pool_ms": milliseconds(one.time),
            "pool_each_ms": milliseconds(each.time),
            "ratio": self.ratio(),
            "speed_up": self.speed_up,
            "speed_up_each": self.speed_up_each,
            "stream_waits": one.stream_waits,
            "stream_waits_each": each.stream_waits,
            "reuse_waits": one.reuse_waits,
            "reuse_waits_each": each.reuse_waits,
            "memory_calls": one.memory_calls,
            "memory_calls_each": each.memory_calls,
            "held_bytes": one.held_bytes,
            "held_bytes_each": each.held_bytes,
            "needed_bytes": one.needed_bytes,
            "needed_bytes_each": each.needed_bytes,
            "wrong_bytes": self.wrong_bytes,
        })
        .to_string()
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
