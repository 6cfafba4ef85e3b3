//! The log of one thread of a recording.
//!
//! Only the thread itself writes, two words per event; the second store publishes both. Readers see all
//! published events at any time. The lock protects only the list of chunks.

use parking_lot::Mutex;
use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of an event's first word: a marker, the operation, the stream, and the time.
pub(super) const IS_EVENT: u64 = 1;
pub(super) const FREE: u64 = 2;
pub(super) const STREAM_SHIFT: u32 = 2;
pub(super) const STREAM_BITS: u32 = 22;
pub(super) const TIME_SHIFT: u32 = STREAM_SHIFT + STREAM_BITS;

/// Bits of an allocation's size; above that its origin.
pub(super) const SIZE_BITS: u32 = 48;

/// Bits of an allocation's number: its index in its log, from 0; above that the log, from 1.
const NUMBER_BITS: u32 = 40;

/// Events of 16 bytes, 0 while unset. The second word is an allocation's size and origin, or the number of a freed
/// allocation. An allocation's own number is its index. Chunks of different threads share no cache line.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Chunk(pub(super) [[AtomicU64; 2]; Chunk::EVENTS]);

/// An event read from a log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Logged {
    pub(super) is_free: bool,
    /// The number of the allocation.
    pub(super) number: u64,
    /// 0 for a free.
    pub(super) size: u64,
    /// 0 for a free.
    pub(super) origin: u32,
    /// The stream's id, of which the lowest [`STREAM_BITS`] are kept.
    pub(super) stream: u64,
    pub(super) t_us: u64,
}

/// The events of one thread, readable by any thread.
#[derive(Debug)]
pub(super) struct Log {
    number: u64,
    /// All chunks but the last are full.
    pub(super) chunks: Mutex<Vec<Arc<Chunk>>>,
}

impl Chunk {
    /// 16 KiB.
    pub(super) const EVENTS: usize = 1024;

    pub(super) fn new() -> Self {
        Self(array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0))))
    }

    /// Acquire: pairs with the release in the writer.
    fn event(words: &[AtomicU64; 2]) -> Option<[u64; 2]> {
        let first = words[0].load(Ordering::Acquire);
        (first != 0).then(|| [first, words[1].load(Ordering::Relaxed)])
    }

    fn events(&self) -> Vec<[u64; 2]> {
        self.0.iter().map_while(Self::event).collect()
    }

    fn len(&self) -> usize {
        self.0.partition_point(|words| Self::event(words).is_some())
    }
}

impl Log {
    pub(super) fn new(number: u64) -> Self {
        Self { number, chunks: Mutex::default() }
    }

    pub(super) fn events(&self) -> u64 {
        let chunks = self.chunks.lock();
        let full = chunks.len().saturating_sub(1) * Chunk::EVENTS;
        chunks.last().map_or(0, |last| (full + last.len()) as u64)
    }

    pub(super) fn first_number(&self) -> u64 {
        (self.number + 1) << NUMBER_BITS
    }

    /// Returns the events published so far.
    pub(super) fn read(&self) -> Vec<Logged> {
        let chunks = self.chunks.lock().clone();
        let words = chunks.into_iter().flat_map(|chunk| chunk.events());
        let logged = |(place, [first, second]): (u64, [u64; 2])| {
            let (is_free, t_us) = (first & FREE != 0, first >> TIME_SHIFT);
            let stream = (first >> STREAM_SHIFT) & ((1 << STREAM_BITS) - 1);
            let (number, size, origin) = match is_free {
                true => (second, 0, 0),
                false => (place, second & ((1 << SIZE_BITS) - 1), (second >> SIZE_BITS) as u32),
            };
            Logged { is_free, number, size, origin, stream, t_us }
        };
        (self.first_number()..).zip(words).map(logged).collect()
    }
}
