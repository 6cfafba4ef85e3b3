//! The driver's memory pools.

use crate::detector::{Clock, Point};
use std::collections::{BTreeMap, HashSet};

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) handle: usize,
    pub(crate) device: usize,
    pub(crate) is_default: bool,
    /// As what it can be exported.
    pub(crate) handle_types: i32,
    /// The most that it reserves, bytes.
    pub(crate) limit: u64,
    /// Nothing has the handle any more; it goes with its last memory.
    pub(crate) is_destroyed: bool,
    pub(crate) threshold: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    /// Reuse by event dependencies, opportunistic, by internal dependencies.
    pub(crate) reuse: [bool; 3],
    /// Devices that may use its memory.
    pub(crate) peers: HashSet<usize>,
    /// Chunks by address, and their sizes.
    pub(crate) chunks: BTreeMap<u64, u64>,
    pub(crate) live: BTreeMap<u64, Block>,
    /// Bytes that `cuMemFree` freed: they count as used until the host waits.
    pub(crate) freed_at_once: u64,
    pub(crate) free: BTreeMap<u64, Free>,
}

/// An allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) bytes: u64,
    /// As asked for, which is what counts as used.
    pub(crate) asked: u64,
}

/// A free range, and what freed it.
#[derive(Debug, Clone)]
pub(crate) struct Free {
    pub(crate) bytes: u64,
    pub(crate) freed: Option<(Point, Clock)>,
}
