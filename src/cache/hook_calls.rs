//! Allocation and release in pools with hooks: calls the hooks around each operation. Other pools bypass
//! this module.

use crate::cache::block::Block;
use crate::cache::core::PoolCore;
use crate::error::Error;
use crate::source::Key;
use crate::source::SourceMemory;
use std::panic::Location;
use std::sync::Arc;
use vrampool_backend::spi::{Announced, Occasion, Ticket};
use vrampool_backend::{Backend, HookEvent, MemoryKind, Stream};

impl PoolCore {
    /// As [`allocate`](Self::allocate), between its hooks.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate_hooked<B: Backend>(
        self: &Arc<Self>,
        bytes: u64,
        kind: MemoryKind,
        stream: &B::Stream,
        site: &'static Location<'static>,
        waiter: Option<u64>,
    ) -> Result<Box<Block>, Error> {
        let ticket = Ticket::new(site);
        let class = self.classes.round(bytes).unwrap_or(u64::MAX);
        let request = self.hooks.announce(Occasion::Request, self.event(ticket, bytes, class));
        let mut block = self.allocate::<B>(bytes, kind, stream, (request.as_ref(), waiter))?;
        if let Some(request) = request {
            *block.ticket() = Some(ticket);
            request.done(block.key.class, block.address());
        }
        Ok(block)
    }

    /// Asks the source for memory, with hooks around it if the source asks the driver.
    pub(crate) fn ask_hooked<B: Backend>(
        &self,
        key: Key,
        stream: &B::Stream,
        request: Option<&Announced<'_>>,
    ) -> Result<SourceMemory<B>, Error> {
        let supply = self.supply::<B>();
        let event = request.filter(|_| supply.asks_driver(key)).map(|request| request.event().clone());
        let announced = event.and_then(|event| self.hooks.announce(Occasion::Allocation, event));
        let extent = supply.allocate(key, &self.name, stream, || self.free_for_source(key, stream.id()))?;
        if let Some(announced) = announced {
            announced.done(key.class, extent.address().map(|(address, _)| address));
        }
        Ok(extent)
    }

    /// Releases a buffer's block between its pool's hooks.
    #[cold]
    #[inline(never)]
    pub(crate) fn release_hooked(mut block: Box<Block>) {
        // The block takes its own handle along.
        let pool = Arc::clone(&block.pool);
        let announced = block.ticket().take().and_then(|ticket| {
            let mut event = pool.event(ticket, block.requested, block.key.class);
            event.address = block.address();
            pool.hooks.announce(Occasion::Free, event)
        });
        Self::release_unhooked(block);
        drop(announced);
    }

    fn event(&self, ticket: Ticket, requested: u64, class: u64) -> HookEvent<'_> {
        HookEvent::new(&self.name, self.device, ticket, requested, class)
    }
}
