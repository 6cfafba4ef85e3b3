//! The number of runs per chunk. Numbers only.

use std::ops::Range;

/// The ratio of requested to available bytes that causes a warning of many chunks (CuBIE's).
pub(crate) const MANY_CHUNKS: u64 = 20;

/// A batch of runs, cut into chunks of [`chunk_len`](Self::chunk_len) runs. The last chunk may be shorter.
///
/// ```
/// # use vrampool::{Pool, host::HostDevice};
/// # use vrampool_broker::{ArrayRequest, Broker, Client};
/// # fn main() -> Result<(), vrampool_broker::BrokerError> {
/// let broker = Broker::builder(&Pool::new(&HostDevice::new())?).build()?;
/// let solver = broker.register(Client::new("solver"))?;
/// solver.queue(ArrayRequest::input("rate", [10], 4).chunk_axis(0))?;
/// broker.set_chunk_runs("default", 5)?;
/// let partition = broker.commit("default")?.partition();
/// assert_eq!((partition.chunk_len(), partition.chunks()), (5, 2));
/// assert_eq!(partition.ranges().collect::<Vec<_>>(), [0..5, 5..10]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Partition {
    runs: u64,
    chunk_len: u64,
}

/// The reason that a batch cannot be cut into chunks that fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// None of the requested arrays may be cut.
    #[error(
        "All requested arrays are unchunkable, and their {requested_bytes} bytes do not fit in the \
         {available_bytes} available bytes; give a larger share, or let arrays be chunked"
    )]
    #[non_exhaustive]
    AllUnchunkable {
        /// Requested bytes.
        requested_bytes: u64,
        /// Available bytes.
        available_bytes: u64,
    },
    /// Arrays that may not be cut leave no room for the rest.
    #[error("{}", no_room(*unchunkable_bytes, *available_bytes))]
    #[non_exhaustive]
    UnchunkableTooLarge {
        /// Bytes of arrays that may not be cut.
        unchunkable_bytes: u64,
        /// Available bytes.
        available_bytes: u64,
    },
    /// Not even one run fits.
    #[error(
        "Can't fit a single run in device memory: it takes {single_run_bytes} bytes beside \
         {unchunkable_bytes} of unchunkable arrays, and there are {available_bytes}; give a larger share, or \
         use fewer streams"
    )]
    #[non_exhaustive]
    SingleRunTooLarge {
        /// Bytes of one run of the arrays that may be cut, including rounding.
        single_run_bytes: u64,
        /// Bytes of arrays that may not be cut.
        unchunkable_bytes: u64,
        /// Available bytes.
        available_bytes: u64,
    },
}

/// Without arrays that may not be cut, the others lack memory.
fn no_room(unchunkable: u64, available: u64) -> String {
    match unchunkable {
        0 => format!(
            "{available} bytes are available for arrays, which is too little for any of them; give a larger share, or a smaller \
             reserve"
        ),
        _ => format!(
            "Unchunkable arrays require {unchunkable} bytes, and {available} are available; give a larger share, or make them \
             smaller"
        ),
    }
}

impl Partition {
    /// Returns the number of runs.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Returns the number of runs of every chunk but the last.
    #[must_use]
    pub fn chunk_len(&self) -> u64 {
        self.chunk_len
    }

    /// Returns the number of chunks.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.runs.div_ceil(self.chunk_len)
    }

    /// Returns the runs of the chunk with this index; empty past the last.
    #[must_use]
    pub fn chunk(&self, index: u64) -> Range<u64> {
        let start = index.saturating_mul(self.chunk_len).min(self.runs);
        start..start.saturating_add(self.chunk_len).min(self.runs)
    }

    /// Returns the runs of all chunks, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let all = *self;
        (0..all.chunks()).map(move |index| all.chunk(index))
    }
}

/// The memory that a batch takes, by the number of streams.
pub(crate) trait Footprint {
    /// Returns the requested bytes of chunkable arrays for all runs.
    fn chunkable(&self) -> u64;
    /// Returns the requested bytes of arrays that are not cut, with one chunk on the device at a time.
    fn unchunkable(&self) -> u64;
    /// Returns the bytes taken for `slots` chunks of `len` runs, including all rounding.
    fn held(&self, len: u64, slots: u64) -> u64;
}

/// Cuts a batch by CuBIE's rule, including all rounding: one chunk if all runs fit, else chunks of as many runs as fit
/// on each of `slots` streams at a time, and at most `most`. There are fewer streams if not even one run fits on each.
/// Returns the partition and the streams.
///
/// # Errors
/// [`ChunkError`], in the order of its variants.
pub(crate) fn fit(
    available: u64,
    footprint: &impl Footprint,
    runs: u64,
    slots: u64,
    most: u64,
) -> Result<(Partition, u64), ChunkError> {
    let runs = runs.max(1);
    if runs <= most && footprint.held(runs, 1) <= available {
        return Ok((Partition { runs, chunk_len: runs }, 1));
    }
    let slots = highest(slots.clamp(1, runs), |slots| footprint.held(1, slots) <= available);
    if slots == 0 {
        return Err(refusal(available, footprint));
    }
    let chunk_len = highest(runs.min(most), |len| footprint.held(len, slots) <= available);
    let partition = Partition { runs, chunk_len };
    // Fewer chunks than streams need only one stream each.
    Ok((partition, slots.min(partition.chunks())))
}

/// Returns the highest number up to `most` that fits, if all below it fit; 0 if none does.
pub(crate) fn highest(most: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

fn refusal(available_bytes: u64, footprint: &impl Footprint) -> ChunkError {
    let unchunkable_bytes = footprint.unchunkable();
    if footprint.chunkable() == 0 {
        ChunkError::AllUnchunkable { requested_bytes: unchunkable_bytes, available_bytes }
    } else if unchunkable_bytes >= available_bytes {
        ChunkError::UnchunkableTooLarge { unchunkable_bytes, available_bytes }
    } else {
        let single_run_bytes = footprint.held(1, 1).saturating_sub(unchunkable_bytes);
        ChunkError::SingleRunTooLarge { single_run_bytes, unchunkable_bytes, available_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn cut(available: u64, per_run: u64, whole: u64, runs: u64) -> Result<(u64, u64), ChunkError> {
        let arrays = Arrays { per_run: vec![per_run], whole: vec![whole], runs, unit: 1 };
        fit(available, &arrays, runs, 1, u64::MAX).map(|(cut, _)| (cut.chunk_len(), cut.chunks()))
    }

    #[test]
    fn cubies_vectors() {
        assert_eq!(cut(1000, 100, 0, 10), Ok((10, 1)));
        assert_eq!(cut(1000, 200, 0, 10), Ok((5, 2)));
        assert_eq!(cut(1000, 200, 500, 10), Ok((2, 5)));
        assert!(matches!(cut(1000, 200, 1000, 10), Err(ChunkError::UnchunkableTooLarge { .. })));
        assert_eq!(cut(10 * MIB, 8, 0, 5_000_000), Ok((1_310_720, 4)));
        assert_eq!(cut(100, 100, 0, 10), Ok((1, 10)));
        assert!(matches!(cut(100, 101, 0, 7), Err(ChunkError::SingleRunTooLarge { .. })));
        assert_eq!(cut(2304, 4, 0, 1024), Ok((576, 2)));
        let error = cut(1000, 0, 1001, 10).expect_err("nothing can be cut");
        assert!(error.to_string().contains("All requested arrays are unchunkable"), "{error}");
        let error = cut(1000, 1, 1000, 10).expect_err("no room");
        assert!(error.to_string().contains("Unchunkable arrays require"), "{error}");
        let error = cut(0, 1, 0, 10).expect_err("no bytes");
        assert!(error.to_string().starts_with("0 bytes are available for arrays"), "{error}");
        let error = cut(100, 101, 0, 7).expect_err("no room for one");
        assert!(error.to_string().contains("Can't fit a single run in device memory"), "{error}");
    }

    #[test]
    fn the_last_chunk_has_what_is_left() {
        let partition = Partition { runs: 1024, chunk_len: 576 };
        assert_eq!(partition.ranges().collect::<Vec<_>>(), [0..576, 576..1024]);
        assert_eq!((partition.chunk(2), partition.chunk(u64::MAX)), (1024..1024, 1024..1024));
    }

    #[test]
    fn numbers_of_any_size_are_no_panic() {
        for available in [0, 1, u64::MAX] {
            for bytes in [0, 1, u64::MAX] {
                for runs in [0, 1, u64::MAX] {
                    let _ = cut(available, bytes, 0, runs);
                    let _ = cut(available, bytes, bytes, runs);
                }
            }
        }
    }

    /// Arrays with given bytes per run, rounded to `unit`.
    #[derive(Debug)]
    struct Arrays {
        per_run: Vec<u64>,
        whole: Vec<u64>,
        runs: u64,
        unit: u64,
    }

    impl Footprint for Arrays {
        fn chunkable(&self) -> u64 {
            sum(self.per_run.iter().map(|bytes| bytes.saturating_mul(self.runs)))
        }

        fn unchunkable(&self) -> u64 {
            sum(self.whole.iter().copied())
        }

        fn held(&self, len: u64, slots: u64) -> u64 {
            let round = |bytes: u64| bytes.checked_next_multiple_of(self.unit).unwrap_or(u64::MAX);
            let cut = sum(self.per_run.iter().map(|bytes| round(bytes.saturating_mul(len))));
            slots.saturating_mul(cut).saturating_add(sum(self.whole.iter().map(|&bytes| round(bytes))))
        }
    }

    fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
        bytes.fold(0, u64::saturating_add)
    }

    /// Counts evaluations of a footprint.
    struct Counting<'a>(&'a Arrays, std::cell::Cell<u64>);

    impl Footprint for Counting<'_> {
        fn chunkable(&self) -> u64 {
            self.0.chunkable()
        }

        fn unchunkable(&self) -> u64 {
            self.0.unchunkable()
        }

        fn held(&self, len: u64, slots: u64) -> u64 {
            self.1.set(self.1.get() + 1);
            self.0.held(len, slots)
        }
    }

    #[test]
    fn any_number_of_slots_is_searched_in_few_steps() {
        let arrays = Arrays { per_run: vec![4], whole: vec![1 << 20], runs: 100_000_000, unit: 512 };
        let counting = Counting(&arrays, std::cell::Cell::new(0));
        let (partition, slots) = fit(2 << 20, &counting, arrays.runs, 1_000_000_000, 1).expect("it fits");
        assert_eq!((partition.chunk_len(), slots), (1, 2048));
        assert!(counting.1.get() < 100, "{} evaluations", counting.1.get());
    }

    proptest! {
        #[test]
        fn chunks_are_those_of_a_search_one_by_one(
            per_run in prop::collection::vec(1u64..200, 1..5), whole in prop::collection::vec(1u64..2000, 0..3),
            runs in 1u64..500, unit in prop::sample::select(vec![1u64, 7, 512, 2048]), available in 1u64..200_000,
            slots in 1u64..5, most in prop::sample::select(vec![u64::MAX, 1, 10, 100]),
        ) {
            let arrays = Arrays { per_run, whole, runs, unit };
            let fits = |len, slots| arrays.held(len, slots) <= available;
            let found = fit(available, &arrays, runs, slots, most);
            if runs <= most && fits(runs, 1) {
                prop_assert_eq!(found, Ok((Partition { runs, chunk_len: runs }, 1)));
            } else if let Some(slots) = (1..=slots.min(runs)).rev().find(|&slots| fits(1, slots)) {
                let chunk_len = (1..=runs.min(most)).rev().find(|&len| fits(len, slots)).expect("one fits");
                let partition = Partition { runs, chunk_len };
                prop_assert_eq!(found, Ok((partition, slots.min(partition.chunks()))));
                prop_assert_eq!(partition.ranges().map(|range| range.end - range.start).sum::<u64>(), runs);
            } else {
                prop_assert!(found.is_err());
            }
        }
    }
}
