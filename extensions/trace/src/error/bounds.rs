//! First lines and limits of the files of traces and of fitted classes.

/// The columns, and the first line of files that have no last line.
pub(crate) const HEADER: &str = "op,id,size,stream,t_us";

/// The first line of files whose last line counts their events.
pub(crate) const NEW_HEADER: &str = "op,id,size,stream,t_us,v2";

/// Both, as errors name them.
pub(crate) const HEADERS: &str = "`op,id,size,stream,t_us,v2`, or `op,id,size,stream,t_us`";

/// The first line.
pub(crate) const RMM_HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// The most streams that a trace may have.
pub(crate) const MAX_STREAMS: usize = 1024;

/// The most bytes that a line of a trace may have. The longest event has 91.
pub(crate) const MAX_LINE_BYTES: usize = 256;

/// The most origins of a trace, and bytes of the names of one: a line has room for them.
pub(crate) const MAX_ORIGINS: usize = (1 << 16) - 1;
pub(crate) const MAX_POOL_BYTES: usize = 64;
pub(crate) const MAX_SITE_BYTES: usize = 180;

/// The first line of fitted classes, with the version of the format and of the general rule.
pub(crate) const CLASS_HEADER: &str = "vrampool fitted classes 2";

/// The first line of fitted classes written by hand, which have no last line `end`.
pub(crate) const UNCOUNTED_CLASS_HEADER: &str = "vrampool fitted classes 1";

/// Both, as errors name them.
pub(crate) const CLASS_HEADERS: &str = "`vrampool fitted classes 2`, or `vrampool fitted classes 1`";

/// The largest size of a file of fitted classes in bytes, with room for comments.
pub(crate) const MAX_CLASS_FILE_BYTES: usize = 1 << 16;

/// The largest number of fitted classes.
pub(crate) const MAX_CLASSES: usize = 1024;
