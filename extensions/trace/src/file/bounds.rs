//! The first lines of traces as text, and what a trace may have at most.

/// The columns, and the first line of files that have no last line.
pub(crate) const HEADER: &str = "op,id,size,stream,t_us";

/// The first line of files whose last line counts their events.
pub(crate) const NEW_HEADER: &str = "op,id,size,stream,t_us,v2";

/// The first line.
pub(crate) const RMM_HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// The most streams that a trace may have.
pub(crate) const MAX_STREAMS: usize = 1024;

/// The most bytes that a line of a trace may have. The longest event has 85.
pub(crate) const MAX_LINE_BYTES: usize = 256;
