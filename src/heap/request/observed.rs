//! Requests of a pool with hooks, which are called around each request and free.
//!
//! The class table of such a pool has no bins, so its requests go past the hit path and reach this one place; its frees
//! are in `store::release`. Behind it the magazines work as usual. Pools without hooks have no overhead.

use crate::error::Error;
use crate::heap::request::{Position, Request};
use crate::heap::store::{SourceMemory, without_waits};
use crate::heap::{Block, PoolCore};
use std::panic::Location;
use std::sync::Arc;
use vrampool_backend::spi::{Occasion, Ticket};
use vrampool_backend::{Backend, MemoryKind, Stream};

/// As [`allocate`](PoolCore::allocate), of an observed pool.
#[cold]
#[inline(never)]
pub(crate) fn allocate_observed<B: Backend>(
    pool: &Arc<PoolCore>,
    bytes: u64,
    kind: MemoryKind,
    stream: &B::Stream,
    site: &'static Location<'static>,
    position: &Position<'_>,
) -> Result<Box<Block>, Error> {
    // By the paths of a pool without an observer.
    let serve = |announced| {
        let may_be_large = kind == pool.kind && !position.has_deadline;
        let large = may_be_large.then(|| pool.allocate_large::<B>(bytes, stream, announced)).flatten();
        large.unwrap_or_else(|| pool.allocate::<B>(bytes, kind, stream, (announced, position)))
    };
    let class = pool.class_of(bytes).unwrap_or(u64::MAX);
    let event = pool.event(Ticket::new(site), bytes, class, stream.id());
    let Some(request) = pool.hooks.announce(Occasion::Request, event) else {
        return serve(None);
    };
    let mut block = serve(Some(request.event()))?;
    let ticket = request.done(block.key.class, block.address());
    *block.part.ticket() = Some(ticket);
    Ok(block)
}

impl<B: Backend> Request<'_, B> {
    /// Asks the source for memory, with hooks around it if the source asks the driver.
    pub(super) fn ask_hooked(&self) -> Result<SourceMemory<B>, Error> {
        let (&Request { pool, key, stream, .. }, supply) = (self, self.supply());
        // All idle blocks are smaller than a class that is not kept.
        let has_idle = pool.caps.cache(key.class);
        let reclaim = has_idle.then_some(|| pool.free_for_source(key.kind, stream.id()));
        let allocate = || supply.allocate(key, &pool.name, stream, reclaim);
        let Some(request) = self.announced.filter(|_| supply.asks_driver(key)) else { return allocate() };
        let event = request.clone();
        let announced = without_waits(|| pool.hooks.announce(Occasion::Allocation, event));
        let extent = allocate();
        without_waits(|| match (&extent, announced) {
            (Ok(extent), Some(announced)) => {
                let _ = announced.done(key.class, extent.address().map(|(address, _)| address));
            }
            // Reports the failure.
            (Err(_), announced) => drop(announced),
            (Ok(_), None) => {}
        });
        extent
    }
}
