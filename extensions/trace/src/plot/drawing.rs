//! What all pictures show: the blocks of a trace, and the figures of the pool that served it.

use super::segments::{self, Segment};
use crate::file::origin::Origin;

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
    /// By number, from 1.
    pub(super) origins: Vec<Origin>,
    /// Addresses with memory behind them and their bytes, from an event on.
    pub(super) pages: Vec<(u64, Vec<(u64, u64)>)>,
    /// Of a snapshot, addresses of memory without a live block, and their bytes: first what is idle, then what was
    /// freed and device work still uses. `None` of a trace.
    pub(super) kept: Option<[Vec<(u64, u64)>; 2]>,
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
    /// The number of its origin; 0 if that is unknown.
    pub(super) origin: u32,
}

impl Drawing {
    pub(super) fn segments(&self) -> Vec<Segment> {
        let blocks = self.blocks.iter().filter_map(|block| Some((block.address?, block.capacity)));
        segments::of(blocks.chain(self.pages.iter().flat_map(|(_, ranges)| ranges.iter().copied())))
    }
}
