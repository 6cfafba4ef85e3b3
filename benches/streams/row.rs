//! Rows of the table, and lines of JSON.

use crate::case::Case;
use crate::measurement::Measurement;
use crate::options::Amount;
use std::collections::BTreeMap;
use std::fmt::Write;
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
    pub(crate) const HEAD: &'static str = concat!(
        "scene     size     source   classes       streams  one pool ms  a pool each ms  ratio  ",
        "speed-up  each  waits  for memory  calls  MiB one pool  ÷ needed  MiB pools  ratio"
    );

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

    /// How many times as many bytes one pool takes as the pools together.
    fn held_ratio(&self) -> f64 {
        self.measured.one.held_bytes as f64 / self.measured.each.held_bytes.max(1) as f64
    }

    pub(crate) fn line(&self) -> String {
        let Self { case, streams, measured: Measurement { one, each, .. }, .. } = self;
        let number = |number: Option<f64>| number.map_or_else(String::new, |number| format!("{number:.2}"));
        let mut line = format!(
            "{:<9} {:<8} {:<8} {:<13} {streams:>7}  {:>11.1}  {:>14.1}  {:>5.2}  {:>8}  {:>4}  {:>5}  {:>10}  {:>5}  {:>12.1}  {:>8.2}  {:>9.1}  {:>5.2}",
            case.scene.name(),
            size(case.block_bytes),
            case.source.name(),
            case.classes.to_string(),
            milliseconds(one.time),
            milliseconds(each.time),
            self.ratio(),
            number(self.speed_up),
            number(self.speed_up_each),
            one.stream_waits,
            one.reuse_waits,
            one.memory_calls,
            mib(one.held_bytes),
            one.held_bytes as f64 / one.needed_bytes.max(1) as f64,
            mib(each.held_bytes),
            self.held_ratio(),
        );
        if let Some(limit) = case.limit {
            let _ = write!(line, "  limit {:.1} MiB", mib(limit));
        }
        if self.wrong_bytes > 0 {
            let _ = write!(line, "  {} WRONG BYTES", self.wrong_bytes);
        }
        line
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
            "limit_bytes": case.limit,
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

/// For each device, scene and number of streams: the median and the highest ratio, the lowest speed-up, and
/// the highest ratio of bytes.
pub(crate) fn summary(rows: &[Row]) -> String {
    let mut groups: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.streams > 1 && row.case.limit.is_none()) {
        groups.entry((row.backend, row.case.scene.name(), row.streams)).or_default().push(row);
    }
    let mut text = String::from(
        "device  scene     streams  one pool ÷ a pool each: median  highest  lowest speed-up  each  highest bytes ÷\n",
    );
    for ((backend, scene, streams), rows) in groups {
        let mut ratios: Vec<_> = rows.iter().map(|row| row.ratio()).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let (median, highest) = (ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
        let held = rows.iter().map(|row| row.held_ratio()).fold(0.0, f64::max);
        let lowest = |speed_up: fn(&Row) -> Option<f64>| {
            rows.iter().filter_map(|row| speed_up(row)).fold(f64::INFINITY, f64::min)
        };
        let (one, each) = (lowest(|row| row.speed_up), lowest(|row| row.speed_up_each));
        let _ = writeln!(
            text,
            "{backend:<7} {scene:<9} {streams:>7}  {median:>30.2}  {highest:>7.2}  {one:>15.2}  {each:>4.2}  {held:>15.2}"
        );
    }
    text
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}
