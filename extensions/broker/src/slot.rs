//! The memory of one stream for its chunks, and the view of a chunk that the caller's work gets.

use crate::error::BrokerError;
use crate::id::ArrayId;
use crate::state::{Grant, Held};
use std::fmt;
use std::ops::Range;
use vrampool_backend::{Backend, Region, RegionMut};

/// A stream, and memory for chunks of up to `len` runs.
#[derive(Debug)]
pub(crate) struct StreamSlot<B: Backend> {
    pub(crate) index: usize,
    pub(crate) stream: B::Stream,
    pub(crate) len: u64,
    /// By array of the grant; `None` for arrays that all streams share.
    pub(crate) memory: Vec<Option<Held<B>>>,
}

/// A part of a batch on the device, passed to the caller's work of a [run](crate::Execution::run).
pub struct Chunk<'a, B: Backend> {
    pub(crate) index: u64,
    pub(crate) range: Range<u64>,
    pub(crate) slot: usize,
    pub(crate) stream: &'a B::Stream,
    pub(crate) grant: &'a Grant,
    /// By array. They prevent moves of the memory while the chunk exists.
    pub(crate) regions: Vec<Region<'a, B::Memory>>,
}

impl<'a, B: Backend> Chunk<'a, B> {
    /// Returns its number, from 0.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns its runs.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns the index of its stream within the run.
    #[must_use]
    pub fn stream_index(&self) -> usize {
        self.slot
    }

    /// Returns an array's part for reading on the chunk's stream.
    ///
    /// The part is dense, with the array's shape and [`runs`](Self::runs) along the chunk axis; for an array
    /// that is not cut it is the whole array.
    ///
    /// # Errors
    /// [`BrokerError::Request`] for an array of another plan.
    pub fn region(&self, array: ArrayId) -> Result<Region<'a, B::Memory>, BrokerError> {
        let at = self.position(array)?;
        let bytes = self.grant.arrays[at].layout.chunk_bytes(self.runs());
        Ok(self.regions[at].slice(..bytes)?)
    }

    /// Returns the same part for writing. Uses of a part are ordered by the chunk's single stream.
    ///
    /// # Errors
    /// As [`region`](Self::region); [`BrokerError::Request`] also for an input that is not cut, because other
    /// streams read it.
    pub fn region_mut(&self, array: ArrayId) -> Result<RegionMut<'a, B::Memory>, BrokerError> {
        let at = self.position(array)?;
        let found = &self.grant.arrays[at];
        if found.is_shared() && !found.is_sole() {
            let reason = "it is an input that is not cut: all streams read it, and none writes it".into();
            return Err(BrokerError::Request { label: found.label.clone(), reason });
        }
        Ok(self.region(array)?.assume_exclusive())
    }

    fn position(&self, array: ArrayId) -> Result<usize, BrokerError> {
        let found = self.grant.arrays.iter().position(|own| own.id == array);
        found.ok_or_else(|| unknown(array))
    }
}

pub(crate) fn unknown(array: ArrayId) -> BrokerError {
    let reason = "it is none of the plan's: commit after it is queued, and use what was queued last".into();
    BrokerError::Request { label: format!("number {}", array.0), reason }
}

impl<B: Backend> fmt::Debug for Chunk<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk")
            .field("index", &self.index)
            .field("range", &self.range)
            .field("stream", &self.slot)
            .finish_non_exhaustive()
    }
}
