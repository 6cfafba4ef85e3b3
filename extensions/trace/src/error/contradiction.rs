//! Contradictions in a trace that do not prevent reading it.

/// The kind of a contradiction in a trace's file. The reader continues as each describes, and the trace keeps a
/// [`TraceWarning`](crate::TraceWarning); a [strict](crate::Import::strict) reader fails instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contradiction {
    /// A file of this crate's format without its last line.
    Uncounted,
    /// A recording that ran out of room. The trace is the first part of each thread's events.
    Dropped,
    /// A free of an address that was freed before and not allocated since: it is ignored.
    FreedTwice,
    /// Two live allocations have bytes in common: both are kept.
    Overlap,
    /// A free whose size is not that of its allocation: the size of the allocation counts.
    OtherSize,
    /// A time before that of the event before, by the same clock: the order of the file is kept.
    TimeGoesBack,
    /// An event of a snapshot with an action that no known version writes: it is ignored.
    UnknownAction,
    /// A block that is live in a snapshot's segments and freed in its history, which takes precedence.
    FreedAndLive,
}
