//! Memory that was freed, and that device work may still use.

use crate::captured::Private;
use std::sync::Arc;
use vrampool::any::AnyDevice;
use vrampool::{Buffer, internal};

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Released private pools, whose graphs' last work may be pending.
    pub(crate) released: Vec<Arc<Private>>,
    /// Blocks of released ones that were freed later.
    pub(crate) of_graphs: Vec<(Buffer<AnyDevice>, Arc<Private>)>,
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

    /// Bytes of released private pools, each once.
    pub(crate) fn of_graphs_bytes(&self) -> u64 {
        let is_beside = |home: &Arc<Private>| !self.released.iter().any(|of| Arc::ptr_eq(of, home));
        let blocks = self.of_graphs.iter().filter(|(_, home)| is_beside(home));
        let pools = self.released.iter().map(|of| of.own.held_bytes());
        pools.chain(blocks.map(|(buffer, _)| buffer.capacity())).sum()
    }

    /// Frees all of it. Returns the bytes that private pools released: what shares a page with a live block stays.
    pub(crate) fn release(self) -> u64 {
        let Self { released: mut pools, of_graphs, unordered } = self;
        let (buffers, homes): (Vec<_>, Vec<_>) = of_graphs.into_iter().unzip();
        pools.extend(homes);
        pools.sort_by_key(Arc::as_ptr);
        pools.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let held = || pools.iter().map(|of| of.own.held_bytes()).sum::<u64>();
        let before = held();
        drop((buffers, unordered));
        pools.iter().for_each(|of| {
            let _ = internal::release_private(&of.own.pool);
        });
        before.saturating_sub(held())
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
