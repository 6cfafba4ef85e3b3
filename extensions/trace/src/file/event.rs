//! An event of a trace.

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// An allocation, `a` in a file.
    Allocate,
    /// A free, `f` in a file.
    Free,
}

/// One event of a [`Trace`](crate::Trace), as it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TraceEvent {
    /// The operation.
    pub op: Op,
    /// To which allocation.
    pub id: u64,
    /// Requested bytes; of a free, the size that was recorded for it.
    pub size: u64,
    /// The recorder's number of the stream: the one an allocation is for, or the last that used what is
    /// freed.
    pub stream: u64,
    /// Microseconds since the recording began.
    pub t_us: u64,
    /// Of an allocation, the place of its [origin](crate::Trace::origin) in [`Trace::origins`](crate::Trace::origins),
    /// from 1; 0 if that is unknown, and of a free.
    pub origin: u32,
}
