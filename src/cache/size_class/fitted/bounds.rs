//! What a file of classes begins with, and how large it may be.

/// The first line of every file. The number is the format's, and that of the general rule for what was not
/// learned.
pub(crate) const HEADER: &str = "vrampool fitted classes 2";

/// The first line of files of earlier versions, and of those that people write: without a last line `end`.
pub(crate) const OLD_HEADER: &str = "vrampool fitted classes 1";

/// The most bytes that a file of classes may have: comments have room.
pub const MAX_FILE: usize = 1 << 16;

/// The most sizes there may be.
pub(crate) const MAX_CLASSES: usize = 1024;
