//! The two parts of an arena.

use std::fmt;

/// The part of an arena that a block is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Zone {
    /// The front part, only if the layout has one. Its blocks never move.
    Stable,
    /// The part after the stable zone. Compaction may move its blocks.
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
