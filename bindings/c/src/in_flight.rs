//! Memory that was freed, and that device work may still use.

use crate::tags::Tagged;
use std::sync::Arc;
use vrampool::Buffer;
use vrampool::any::AnyDevice;

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Released private pools, whose graphs' last work may be pending.
    pub(crate) released: Vec<Arc<Tagged>>,
    /// Their blocks that were freed later.
    pub(crate) of_graphs: Vec<Buffer<AnyDevice>>,
    /// Of no graph; not all streams that use it are known.
    pub(crate) unordered: Vec<Buffer<AnyDevice>>,
}

/// What is free of one pool, and counts as live there.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unordered {
    pub(crate) requested: u64,
    pub(crate) bytes: u64,
    pub(crate) buffers: u64,
}

impl InFlight {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.released.len() + self.of_graphs.len() + self.unordered.len()
    }

    pub(crate) fn add(&mut self, mut other: Self) {
        self.released.append(&mut other.released);
        self.of_graphs.append(&mut other.of_graphs);
        self.unordered.append(&mut other.unordered);
    }

    /// Bytes of released private pools.
    pub(crate) fn of_graphs_bytes(&self) -> u64 {
        let pools: u64 = self.released.iter().map(|own| own.held_bytes()).sum();
        pools + self.of_graphs.iter().map(Buffer::capacity).sum::<u64>()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.of_graphs_bytes() + self.unordered.iter().map(Buffer::capacity).sum::<u64>()
    }

    /// What is of no graph, of a pool by its name.
    pub(crate) fn unordered_of(&self, pool: &str) -> Unordered {
        let of_pool = self.unordered.iter().filter(|buffer| buffer.pool_name() == pool);
        of_pool.fold(Unordered::default(), |sum, buffer| Unordered {
            requested: sum.requested + buffer.len(),
            bytes: sum.bytes + buffer.capacity(),
            buffers: sum.buffers + 1,
        })
    }
}
