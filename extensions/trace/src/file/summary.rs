//! The summary of a trace.

use super::event::Op;
use super::reader::Trace;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// The whole of a [`Trace`]. Serialized, bytes have no suffix and the duration is `duration_us`, microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Its name.
    pub trace: String,
    /// Allocations and frees.
    pub events: u64,
    /// Allocations alone.
    pub allocations: u64,
    /// Frees alone.
    pub frees: u64,
    /// Allocations that are live at the end.
    pub never_freed: u64,
    /// Allocations that its recording dropped for lack of room.
    pub dropped: u64,
    /// Streams that it names.
    pub streams: usize,
    /// Different sizes that it asks for.
    pub distinct_sizes: usize,
    /// Bytes of all allocations.
    #[serde(rename = "requested")]
    pub requested_bytes: u64,
    /// The most bytes that were live at once, before any rounding.
    #[serde(rename = "peak_requested")]
    pub peak_requested_bytes: u64,
    /// Bytes of the largest allocation.
    #[serde(rename = "largest")]
    pub largest_bytes: u64,
    /// The time from its first event to its last.
    #[serde(rename = "duration_us", serialize_with = "microseconds")]
    pub duration: Duration,
}

/// Allocations of some sizes: at least `from` bytes, below twice that; of 0 and of 1 byte, those alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SizeRange {
    /// The smallest size, bytes.
    pub from: u64,
    /// The largest, bytes.
    pub to: u64,
    /// Number of allocations.
    pub allocations: u64,
    /// Their bytes together.
    pub bytes: u64,
    /// Of all allocations, 0 to 1.
    pub share: f64,
}

impl Trace {
    /// The whole in a few numbers.
    ///
    /// ```
    /// use vrampool_trace::Trace;
    /// let trace = Trace::parse("op,id,size,stream,t_us\na,0,3000,0,0\nf,0,3000,0,5\na,1,1000,0,7\n".as_bytes())?;
    /// let summary = trace.summary();
    /// assert_eq!((summary.allocations, summary.never_freed, summary.peak_requested_bytes), (2, 1, 3000));
    /// assert_eq!(trace.size_ranges()[0].from, 512);
    /// # Ok::<(), vrampool_trace::TraceError>(())
    /// ```
    #[must_use]
    pub fn summary(&self) -> Summary {
        let (events, allocations) = (self.events().len() as u64, self.sizes().count() as u64);
        let times = || self.events().iter().map(|event| event.t_us);
        let frees = events - allocations;
        Summary {
            trace: self.name().into(),
            events,
            allocations,
            frees,
            never_freed: allocations - frees,
            dropped: self.dropped(),
            streams: self.events().iter().map(|event| event.stream).collect::<HashSet<_>>().len(),
            distinct_sizes: self.sizes().collect::<HashSet<_>>().len(),
            requested_bytes: self.sizes().fold(0, u64::saturating_add),
            peak_requested_bytes: self.peak_requested(),
            largest_bytes: self.sizes().max().unwrap_or(0),
            duration: Duration::from_micros(times().max().unwrap_or(0) - times().min().unwrap_or(0)),
        }
    }

    /// The ranges of sizes that it asks for, smallest first.
    #[must_use]
    pub fn size_ranges(&self) -> Vec<SizeRange> {
        let mut ranges: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut all = 0u32;
        for size in self.sizes() {
            let from = size.checked_ilog2().map_or(0, |power| 1 << power);
            let (allocations, bytes) = ranges.entry(from).or_default();
            *allocations += 1;
            *bytes = bytes.saturating_add(size);
            all += 1;
        }
        let range = |(from, (allocations, bytes)): (u64, (u64, u64))| SizeRange {
            from,
            to: if from == 0 { 0 } else { from + (from - 1) },
            allocations,
            bytes,
            share: allocations as f64 / f64::from(all),
        };
        ranges.into_iter().map(range).collect()
    }

    /// Of its allocations.
    fn sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.events().iter().filter(|event| event.op == Op::Allocate).map(|event| event.size)
    }
}

fn microseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}
