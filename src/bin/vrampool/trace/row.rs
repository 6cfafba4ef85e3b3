//! What is in a trace, as lines of JSON.

use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use vrampool::trace::{Op, Trace};

/// The whole. The names and their order are those of the JSON, here and below.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Summary {
    row: &'static str,
    pub(crate) trace: String,
    pub(crate) events: u64,
    pub(crate) allocations: u64,
    pub(crate) frees: u64,
    /// Live at the end.
    pub(crate) never_freed: u64,
    pub(crate) streams: usize,
    pub(crate) distinct_sizes: usize,
    /// Of all allocations.
    pub(crate) requested: u64,
    pub(crate) peak_requested: u64,
    pub(crate) largest: u64,
    pub(crate) duration_us: u64,
}

/// Allocations of some sizes: at least `from` bytes, below twice that; of 0 and of 1 byte, those alone.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sizes {
    row: &'static str,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
    /// Of all allocations.
    pub(crate) share: f64,
}

impl Summary {
    pub(crate) fn new(trace: &Trace) -> Self {
        let sizes = || trace.events().iter().filter(|event| event.op == Op::Allocate).map(|event| event.size);
        let (events, allocations) = (trace.events().len() as u64, sizes().count() as u64);
        let times = || trace.events().iter().map(|event| event.t_us);
        let frees = events - allocations;
        Self {
            row: "trace",
            trace: trace.name().into(),
            events,
            allocations,
            frees,
            never_freed: allocations - frees,
            streams: trace.events().iter().map(|event| event.stream).collect::<HashSet<_>>().len(),
            distinct_sizes: sizes().collect::<HashSet<_>>().len(),
            requested: sizes().fold(0, u64::saturating_add),
            peak_requested: trace.peak_requested(),
            largest: sizes().max().unwrap_or(0),
            duration_us: times().max().unwrap_or(0) - times().min().unwrap_or(0),
        }
    }
}

impl Sizes {
    /// Those that there are, smallest first.
    pub(crate) fn of(trace: &Trace) -> Vec<Self> {
        let mut ranges: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut all = 0u32;
        for event in trace.events().iter().filter(|event| event.op == Op::Allocate) {
            let from = event.size.checked_ilog2().map_or(0, |power| 1 << power);
            let (allocations, bytes) = ranges.entry(from).or_default();
            *allocations += 1;
            *bytes = bytes.saturating_add(event.size);
            all += 1;
        }
        let row = |(from, (allocations, bytes)): (u64, (u64, u64))| Self {
            row: "sizes",
            from,
            to: if from == 0 { 0 } else { from + (from - 1) },
            allocations,
            bytes,
            share: allocations as f64 / f64::from(all),
        };
        ranges.into_iter().map(row).collect()
    }
}
