//! Both paths of a pool with hooks, which are called around each request and free.
//!
//! The class table of such a pool has no bins, so its requests and frees go past the hit path and reach this
//! one place. Behind it the magazines work as usual. Pools without hooks have no overhead.

use crate::error::Error;
use crate::heap::block::Block;
use crate::heap::core::PoolCore;
use crate::heap::request::position::Position;
use crate::heap::store::release::without_waits;
use crate::heap::store::supply::SourceMemory;
use crate::source::Key;
use std::panic::Location;
use std::sync::Arc;
use vrampool_backend::spi::{Occasion, Ticket};
use vrampool_backend::{Backend, HookCalls, HookEvent, MemoryKind, Stream, StreamId};

impl PoolCore {
    /// As [`allocate`](Self::allocate), of an observed pool.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate_observed<B: Backend>(
        self: &Arc<Self>,
        bytes: u64,
        kind: MemoryKind,
        stream: &B::Stream,
        site: &'static Location<'static>,
        position: &Position<'_>,
    ) -> Result<Box<Block>, Error> {
        // By the paths of a pool without an observer.
        let serve = |announced| {
            let may_be_large = kind == self.kind && !position.has_deadline;
            let large = may_be_large.then(|| self.allocate_large::<B>(bytes, stream, announced)).flatten();
            large.unwrap_or_else(|| self.allocate::<B>(bytes, kind, stream, (announced, position)))
        };
        let class = self.class_of(bytes).unwrap_or(u64::MAX);
        let event = self.event(Ticket::new(site), bytes, class, stream.id());
        let Some(request) = self.hooks.announce(Occasion::Request, event) else {
            return serve(None);
        };
        let mut block = serve(Some(request.event()))?;
        let ticket = request.done(block.key.class, block.address());
        *block.part.ticket() = Some(ticket);
        Ok(block)
    }

    /// Asks the source for memory, with hooks around it if the source asks the driver.
    pub(crate) fn ask_hooked<B: Backend>(
        &self,
        key: Key,
        stream: &B::Stream,
        request: Option<&HookEvent<'_>>,
    ) -> Result<SourceMemory<B>, Error> {
        let supply = self.supply::<B>();
        let allocate = || supply.allocate(key, &self.name, stream, || self.free_for_source(key, stream.id()));
        let Some(request) = request.filter(|_| supply.asks_driver(key)) else { return allocate() };
        let event = request.clone();
        let announced = without_waits(|| self.hooks.announce(Occasion::Allocation, event));
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

    /// Releases the block of an observed pool by `release`. The hooks know of the free before another thread can get
    /// the block.
    #[cold]
    #[inline(never)]
    pub(crate) fn release_observed(mut block: Box<Block>, release: impl FnOnce(Box<Block>)) {
        let Some(ticket) = block.part.ticket().take() else { return release(block) };
        if !block.pool.hooks.need(HookCalls::AFTER_FREE) {
            block.pool.hooks.before(Occasion::Free, &block.pool.free_event(&block, ticket));
            return release(block);
        }
        // The block takes its own handle along.
        let pool = Arc::clone(&block.pool);
        let announced = pool.hooks.announce(Occasion::Free, pool.free_event(&block, ticket));
        release(block);
        drop(announced);
    }

    #[inline]
    fn free_event(&self, block: &Block, ticket: Ticket) -> HookEvent<'_> {
        let mut event = self.event(ticket, block.requested, block.key.class, block.last_use.writer());
        event.address = block.address();
        event
    }

    #[inline]
    pub(crate) fn event(
        &self,
        ticket: Ticket,
        requested: u64,
        class: u64,
        stream: StreamId,
    ) -> HookEvent<'_> {
        HookEvent::new(&self.name, self.device, ticket, requested, class, stream)
    }
}
