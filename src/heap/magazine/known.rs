//! A thread's table from a caller's numbers for a pool and a stream to the thread's idle blocks, which are then found
//! without a handle of the pool or of the stream.

use std::cell::Cell;
use vrampool_backend::StreamId;

/// A caller's numbers for a pool and a stream.
#[cfg_attr(model, allow(unreachable_pub, reason = "a model has no callers by numbers"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The pool.
    pub pool: u64,
    /// The stream, of the pool's device.
    pub stream: u64,
    /// The caller's epoch: it changes before `pool` or `stream` means something else.
    pub epoch: u64,
}

/// The slot that serves requests with these numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownPool {
    numbers: Numbers,
    /// The slot of the thread cache.
    pub(super) slot: u8,
    /// The epoch of the thread cache; no other pool is ever in it.
    pub(super) epoch: u64,
    pub(super) stream: StreamId,
}

/// Number of entries of a thread: a power of two.
#[cfg(not(model))]
const ENTRIES: usize = 16;
#[cfg(model)]
const ENTRIES: usize = 1;

/// The entries of a thread, each at the place of its numbers.
pub(super) struct Known([KnownPlace; ENTRIES]);

/// On one cache line.
#[repr(align(64))]
struct KnownPlace(Cell<Option<KnownPool>>);

impl Known {
    pub(super) const fn new() -> Self {
        Self([const { KnownPlace(Cell::new(None)) }; ENTRIES])
    }

    #[inline(always)]
    fn place(&self, numbers: Numbers) -> &Cell<Option<KnownPool>> {
        let hash = (numbers.stream ^ numbers.pool).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> 60) as usize % ENTRIES].0
    }

    #[inline(always)]
    pub(super) fn find(&self, numbers: Numbers) -> Option<KnownPool> {
        self.place(numbers).get().filter(|entry| entry.numbers == numbers)
    }

    pub(super) fn set(&self, numbers: Numbers, slot: u8, epoch: u64, stream: StreamId) {
        self.place(numbers).set(Some(KnownPool { numbers, slot, epoch, stream }));
    }

    pub(super) fn clear(&self) {
        self.0.iter().for_each(|place| place.0.set(None));
    }
}
