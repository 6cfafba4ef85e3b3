//! The number of runs per chunk. Numbers only.

use std::ops::Range;

/// The ratio of requested to available bytes that causes a warning of many chunks (CuBIE's).
pub(crate) const MANY_CHUNKS: u64 = 20;

/// A batch of runs, cut into chunks of [`chunk_len`](Self::chunk_len) runs. The last chunk may be shorter.
///
/// ```
/// # use vrampool::host::HostDevice;
/// # use vrampool_broker::{ArrayRequest, Broker, Client};
/// # fn main() -> Result<(), vrampool_broker::BrokerError> {
/// let broker = Broker::builder(&HostDevice::new()).build()?;
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
        /// Bytes of one run of the arrays that may be cut.
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
    /// Computes a partition by CuBIE's rule, in exact arithmetic.
    ///
    /// All runs form one chunk if they take *less* than `available_bytes`. Otherwise a chunk has as many runs
    /// as fit beside `unchunkable_bytes`. `chunkable`: bytes of the arrays that are cut, for all `runs`.
    ///
    /// # Errors
    /// [`ChunkError`], in the order of its variants.
    pub(crate) fn new(
        available_bytes: u64,
        chunkable: u64,
        unchunkable_bytes: u64,
        runs: u64,
    ) -> Result<Self, ChunkError> {
        let runs = runs.max(1);
        let requested_bytes = chunkable.saturating_add(unchunkable_bytes);
        if requested_bytes < available_bytes {
            return Ok(Self::whole(runs));
        }
        if chunkable == 0 {
            return Err(ChunkError::AllUnchunkable { requested_bytes, available_bytes });
        }
        let Some(left) = available_bytes.checked_sub(unchunkable_bytes).filter(|&left| left > 0) else {
            return Err(ChunkError::UnchunkableTooLarge { unchunkable_bytes, available_bytes });
        };
        let len = u128::from(runs) * u128::from(left) / u128::from(chunkable);
        match u64::try_from(len).unwrap_or(u64::MAX).min(runs) {
            0 => {
                let single_run_bytes = chunkable.div_ceil(runs);
                Err(ChunkError::SingleRunTooLarge { single_run_bytes, unchunkable_bytes, available_bytes })
            }
            chunk_len => Ok(Self { runs, chunk_len }),
        }
    }

    /// Returns a partition with all runs in one chunk.
    pub(crate) fn whole(runs: u64) -> Self {
        Self { runs, chunk_len: runs }
    }

    /// Returns a partition of the same runs with `chunk_len` runs per chunk.
    pub(crate) fn with_chunk_len(self, chunk_len: u64) -> Self {
        Self { chunk_len: chunk_len.clamp(1, self.runs), ..self }
    }

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
    /// Returns the requested bytes of arrays that are not cut, with `slots` chunks on the device at a time.
    fn unchunkable(&self, slots: u64) -> u64;
    /// Returns the bytes taken for `slots` chunks of `len` runs, including all rounding.
    fn held(&self, len: u64, slots: u64) -> u64;
}

/// Applies the rule including rounding, so that a result does fit. There are `slots` chunks on the device at
/// a time (fewer if not even one run fits on each), of at most `most` runs. Returns the partition and the
/// slots.
pub(crate) fn fit(
    available: u64,
    footprint: &impl Footprint,
    runs: u64,
    slots: u64,
    most: u64,
) -> Result<(Partition, u64), ChunkError> {
    let runs = runs.max(1);
    // Rounding is included, so all available bytes may be used.
    if runs <= most && footprint.held(runs, 1) <= available {
        return Ok((Partition::whole(runs), 1));
    }
    let slots = slots.clamp(1, runs);
    let attempt = |slots| {
        let partition = fit_slots(available, footprint, runs, slots, most)?;
        // Fewer chunks than slots need only one slot each.
        Ok((partition, slots.min(partition.chunks())))
    };
    let all = attempt(slots);
    if all.is_ok() || slots == 1 {
        return all;
    }
    // If any number of slots fits, 1 does.
    let (mut enough, mut fits, mut too_many) = (1, attempt(1)?, slots);
    while enough + 1 < too_many {
        let middle = enough + (too_many - enough) / 2;
        match attempt(middle) {
            Ok(fitting) => (enough, fits) = (middle, fitting),
            Err(_) => too_many = middle,
        }
    }
    Ok(fits)
}

fn fit_slots(
    available_bytes: u64,
    footprint: &impl Footprint,
    runs: u64,
    slots: u64,
    most_runs: u64,
) -> Result<Partition, ChunkError> {
    let (chunkable, unchunkable_bytes) = (footprint.chunkable(), footprint.unchunkable(slots));
    let partition =
        Partition::new(available_bytes, chunkable.saturating_mul(slots), unchunkable_bytes, runs)?;
    let partition = partition.with_chunk_len(partition.chunk_len.min(most_runs));
    let fits = |len: u64| footprint.held(len, slots.min(runs.div_ceil(len))) <= available_bytes;
    if fits(partition.chunk_len) {
        return Ok(partition);
    }
    // The longest chunk that fits: `held` grows with the length at a fixed number of slots.
    let (mut most, mut too_many) = (0, partition.chunk_len);
    while most + 1 < too_many {
        let middle = most + (too_many - most) / 2;
        if footprint.held(middle, slots) <= available_bytes { most = middle } else { too_many = middle }
    }
    match most {
        0 if chunkable == 0 => {
            Err(ChunkError::AllUnchunkable { requested_bytes: unchunkable_bytes, available_bytes })
        }
        0 => {
            let single_run_bytes = footprint.held(1, slots).saturating_sub(unchunkable_bytes);
            Err(ChunkError::SingleRunTooLarge { single_run_bytes, unchunkable_bytes, available_bytes })
        }
        len => Ok(partition.with_chunk_len(len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn cut(available: u64, chunkable: u64, unchunkable: u64, runs: u64) -> Result<(u64, u64), ChunkError> {
        Partition::new(available, chunkable, unchunkable, runs).map(|cut| (cut.chunk_len(), cut.chunks()))
    }

    #[test]
    fn cubies_vectors() {
        assert_eq!(cut(1000, 999, 0, 10), Ok((10, 1)));
        assert_eq!(cut(1000, 1000, 0, 10), Ok((10, 1)));
        assert_eq!(cut(1000, 2000, 0, 10), Ok((5, 2)));
        assert_eq!(cut(1000, 2000, 500, 10), Ok((2, 5)));
        assert!(matches!(cut(1000, 2000, 1000, 10), Err(ChunkError::UnchunkableTooLarge { .. })));
        assert_eq!(cut(10 * MIB, 40_000_000, 0, 5_000_000), Ok((1_310_720, 4)));
        assert_eq!(cut(100, 1000, 0, 10), Ok((1, 10)));
        assert!(matches!(cut(100, 1000, 0, 7), Err(ChunkError::SingleRunTooLarge { .. })));
        assert_eq!(cut(2304, 4096, 0, 1024), Ok((576, 2)));
        let error = cut(1000, 0, 1000, 10).expect_err("nothing can be cut");
        assert!(error.to_string().contains("All requested arrays are unchunkable"), "{error}");
        let error = cut(1000, 1, 1000, 10).expect_err("no room");
        assert!(error.to_string().contains("Unchunkable arrays require"), "{error}");
        let error = cut(0, 1, 0, 10).expect_err("no bytes");
        assert!(error.to_string().starts_with("0 bytes are available for arrays"), "{error}");
        let error = cut(100, 1000, 0, 7).expect_err("no room for one");
        assert!(error.to_string().contains("Can't fit a single run in device memory"), "{error}");
    }

    #[test]
    fn the_last_chunk_has_what_is_left() {
        let partition = Partition::new(2304, 4096, 0, 1024).expect("it fits");
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
            self.per_run.iter().map(|bytes| bytes * self.runs).sum()
        }

        fn unchunkable(&self, _: u64) -> u64 {
            self.whole.iter().sum()
        }

        fn held(&self, len: u64, slots: u64) -> u64 {
            let round = |bytes: u64| bytes.next_multiple_of(self.unit);
            let cut: u64 = self.per_run.iter().map(|bytes| round(bytes * len)).sum();
            slots * cut + self.whole.iter().map(|&bytes| round(bytes)).sum::<u64>()
        }
    }

    /// Counts evaluations of a footprint.
    struct Counting<'a>(&'a Arrays, std::cell::Cell<u64>);

    impl Footprint for Counting<'_> {
        fn chunkable(&self) -> u64 {
            self.0.chunkable()
        }

        fn unchunkable(&self, slots: u64) -> u64 {
            self.0.unchunkable(slots)
        }

        fn held(&self, len: u64, slots: u64) -> u64 {
            self.1.set(self.1.get() + 1);
            assert!(self.1.get() < 1_000_000, "it searches one by one");
            self.0.held(len, slots)
        }
    }

    #[test]
    fn any_number_of_slots_is_searched_in_few_steps() {
        let arrays = Arrays { per_run: vec![4], whole: vec![1 << 20], runs: 100_000_000, unit: 512 };
        let counting = Counting(&arrays, std::cell::Cell::new(0));
        let (partition, slots) = fit(2 << 20, &counting, arrays.runs, 1_000_000_000, 1).expect("it fits");
        assert_eq!((partition.chunk_len(), slots), (1, 2048));
        assert!(counting.1.get() < 10_000, "{} evaluations", counting.1.get());
    }

    proptest! {
        #[test]
        fn what_is_said_to_fit_does_and_no_longer_chunk_would(
            per_run in prop::collection::vec(1u64..200, 1..5), whole in prop::collection::vec(1u64..2000, 0..3),
            runs in 1u64..500, unit in prop::sample::select(vec![1u64, 7, 512, 2048]), available in 1u64..200_000,
            slots in 1u64..5, most in prop::sample::select(vec![u64::MAX, 1, 10, 100]),
        ) {
            let arrays = Arrays { per_run, whole, runs, unit };
            match fit(available, &arrays, runs, slots, most) {
                Ok((partition, slots)) => {
                    let len = partition.chunk_len();
                    prop_assert!(arrays.held(len, slots) <= available && len <= most);
                    prop_assert!(slots <= partition.chunks());
                    prop_assert_eq!(partition.ranges().map(|range| range.end - range.start).sum::<u64>(), runs);
                    let plain = Partition::new(available, arrays.chunkable(), arrays.unchunkable(1), runs);
                    prop_assert!(plain.is_ok_and(|plain| len <= plain.chunk_len()), "rounding only shortens");
                    if slots > 1 && slots < partition.chunks() && len < most {
                        let longer = arrays.held(len + 1, slots);
                        let exact = arrays.chunkable() * slots / runs * (len + 1) + arrays.unchunkable(1);
                        prop_assert!(longer > available || exact > available || runs.div_ceil(len + 1) < slots);
                    }
                }
                // Not even one run on one stream.
                Err(_) => prop_assert!(arrays.held(1, 1) > available || arrays.unchunkable(1) >= available
                    || Partition::new(available, arrays.chunkable(), arrays.unchunkable(1), runs).is_err()),
            }
        }
    }
}
