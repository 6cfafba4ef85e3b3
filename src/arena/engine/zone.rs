//! The two parts of an arena.

use std::fmt;

/// Which part of an arena a block is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Zone {
    /// At the front; blocks in it never move. There is one only if the layout says so.
    Stable,
    /// Behind the stable zone; compaction may move its blocks.
    Dynamic,
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stable => "stable",
            Self::Dynamic => "dynamic",
        })
    }
}
