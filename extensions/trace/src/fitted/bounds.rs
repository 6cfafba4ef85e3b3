//! Headers and limits of a file of classes.

/// The first line of every file, with the version of the format and of the general rule.
pub(crate) const HEADER: &str = "vrampool fitted classes 2";

/// The first line of files written by hand, which have no last line `end`.
pub(crate) const OLD_HEADER: &str = "vrampool fitted classes 1";

/// The largest size of a file of classes in bytes, with room for comments.
pub(crate) const MAX_FILE_BYTES: usize = 1 << 16;

pub(crate) const MAX_CLASSES: usize = 1024;
