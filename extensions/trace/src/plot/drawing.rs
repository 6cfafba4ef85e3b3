//! What all pictures show: the blocks of a trace, and the figures of the pool that served it.

use super::segments::{self, Segment};

/// Numbers of a sample: those that a page reads.
pub(super) const FIGURES: usize = 7;

/// A trace and how a pool served it.
#[derive(Debug)]
pub(super) struct Drawing {
    pub(super) name: String,
    pub(super) settings: String,
    pub(super) figures: Vec<(&'static str, String)>,
    /// 0 if the pool has none.
    pub(super) limit: u64,
    pub(super) times: Vec<u64>,
    /// Bytes after each event.
    pub(super) requested: Vec<u64>,
    pub(super) blocks: Vec<Block>,
    pub(super) samples: Vec<[u64; FIGURES]>,
}

/// One allocation of the trace.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) start: u64,
    /// Events until its free; 0 if it is never freed.
    pub(super) events: u64,
    pub(super) size: u64,
    pub(super) capacity: u64,
    pub(super) stream: u64,
    pub(super) address: Option<u64>,
}

impl Drawing {
    pub(super) fn segments(&self) -> Vec<Segment> {
        segments::of(self.blocks.iter().filter_map(|block| Some((block.address?, block.capacity))))
    }
}
