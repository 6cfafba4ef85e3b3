//! Contradictions in a trace that do not prevent reading it.

use super::position::Position;
use std::fmt;

/// A contradiction in a trace's file. The reader continues as each variant describes, and the trace keeps a
/// [`TraceWarning`]; a
/// [strict](crate::Import::strict) reader fails instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Contradiction {
    /// A file of this crate's format without its last line.
    #[error(
        "the file has no last line with the number of events, as files that other programs write; truncation at the end of a line is not \
         detected. Write it again with `vrampool trace convert`"
    )]
    Uncounted,
    /// A recording that ran out of room. The trace is the first part of each thread's events.
    #[error(
        "the recording lacks {dropped} allocations and their frees, for which it had no room; peaks and fitted classes are those of the \
         rest. Record again with room for more events"
    )]
    #[non_exhaustive]
    Dropped {
        /// Allocations that it lacks.
        dropped: u64,
    },
    /// A free of an address that was freed before and not allocated since.
    #[error(
        "{address:#x} is freed a second time; this free is ignored. Record all allocations of one device"
    )]
    #[non_exhaustive]
    FreedTwice {
        /// The address.
        address: u64,
    },
    /// Two live allocations have bytes in common.
    #[error(
        "the {size} bytes at {address:#x} overlap a live allocation at {other:#x}; both are kept. Record only one device"
    )]
    #[non_exhaustive]
    Overlap {
        /// The address of the later allocation.
        address: u64,
        /// Its bytes.
        size: u64,
        /// The address of the other one.
        other: u64,
    },
    /// A free whose size is not that of its allocation.
    #[error(
        "the free of {address:#x} has {freed} bytes, but its allocation {allocated}; the size of the allocation is kept"
    )]
    #[non_exhaustive]
    OtherSize {
        /// The address.
        address: u64,
        /// The size at the allocation, bytes.
        allocated: u64,
        /// The size at the free, bytes.
        freed: u64,
    },
    /// In a file of this crate's format: a free whose size is not that of its allocation.
    #[error(
        "the free of allocation {id} has {freed} bytes, but its allocation {allocated}; the size of the allocation counts"
    )]
    #[non_exhaustive]
    FreeOfOtherSize {
        /// The allocation.
        id: u64,
        /// The size at the allocation, bytes.
        allocated: u64,
        /// The size at the free, bytes.
        freed: u64,
    },
    /// A time before that of the event before, by the same clock.
    #[error("the time is {by_us} µs before that of the previous event; the order of the file is kept")]
    #[non_exhaustive]
    TimeGoesBack {
        /// Microseconds.
        by_us: u64,
    },
    /// An event of a snapshot with an action that no known version writes.
    #[error("the event has an unknown `action`; it is ignored")]
    UnknownAction,
    /// A block that is live in a snapshot's segments and freed in its history.
    #[error(
        "the block at {address:#x} is live in the segments but freed in the history; the history takes precedence"
    )]
    #[non_exhaustive]
    FreedAndLive {
        /// The address.
        address: u64,
    },
}

/// One kind of [`Contradiction`] of a trace: the first of its kind, its place, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceWarning {
    /// The first of its kind.
    pub contradiction: Contradiction,
    /// Its line, from 1; `None` in a snapshot, and when it concerns the whole file.
    pub line: Option<u64>,
    /// The device of a snapshot.
    pub device: Option<u32>,
    /// The event of the device's history, from 0.
    pub event: Option<u32>,
    /// Number of contradictions of this kind.
    pub count: u64,
}

impl fmt::Display for TraceWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { contradiction, line, device, event, count } = self;
        let place = Position { line, device, event, ..Position::default() }.to_string();
        f.write_str(&place)?;
        if !place.is_empty() {
            f.write_str(": ")?;
        }
        write!(f, "{contradiction}")?;
        if count > 1 { write!(f, " ({count} times)") } else { Ok(()) }
    }
}

/// The warnings of a trace while it is read.
#[derive(Debug, Default)]
pub(crate) struct Contradictions {
    is_strict: bool,
    pub(crate) warnings: Vec<TraceWarning>,
}

impl Contradictions {
    pub(crate) fn new(is_strict: bool) -> Self {
        Self { is_strict, warnings: Vec::new() }
    }

    /// Counts it, or returns it as the error that it is to a strict reader.
    pub(crate) fn note(
        &mut self,
        contradiction: Contradiction,
        place: &Position,
    ) -> Result<(), Contradiction> {
        if self.is_strict {
            return Err(contradiction);
        }
        let is_same = |warning: &&mut TraceWarning| {
            std::mem::discriminant(&warning.contradiction) == std::mem::discriminant(&contradiction)
        };
        match self.warnings.iter_mut().find(is_same) {
            Some(warning) => warning.count += 1,
            None => {
                let &Position { line, device, event, .. } = place;
                self.warnings.push(TraceWarning { contradiction, line, device, event, count: 1 });
            }
        }
        Ok(())
    }

    /// Notes the allocations that a recording dropped, if any.
    pub(crate) fn note_dropped(&mut self, dropped: u64, place: &Position) -> Result<(), Contradiction> {
        if dropped > 0 { self.note(Contradiction::Dropped { dropped }, place) } else { Ok(()) }
    }
}
