//! The backend's part of a block.

use crate::heap::block::BackendPart;
use crate::heap::pool_order::record_markers;
use crate::heap::store::SourceMemory;
use crate::heap::{BackendState, ErasedPart, PoolCore};
use crate::streams::{Access, Need, Streams, WaitFor};
use smallvec::SmallVec;
use std::mem;
use vrampool_backend::spi::Ticket;
use vrampool_backend::{Backend, Memory, StreamId};

impl<B: Backend> BackendPart<B> {
    /// The streams that may use it.
    pub(in crate::heap) fn users(&self) -> Streams<B::Stream> {
        match &self.extent {
            SourceMemory::Arena(buffer) => buffer.users(),
            _ => self.uses.users(),
        }
    }

    /// As [`users`](Self::users), under the depot's lock.
    pub(in crate::heap) fn users_in(&self, backend_state: &BackendState) -> Streams<B::Stream> {
        match &self.extent {
            SourceMemory::Arena(buffer) => buffer.users_in(backend_state),
            _ => self.uses.users(),
        }
    }
}

impl<B: Backend> Drop for BackendPart<B> {
    fn drop(&mut self) {
        self.release_memory();
    }
}

impl<B: Backend> ErasedPart for BackendPart<B> {
    /// Frees memory of a driver's pool on the stream that wrote it, after all readers. A buffer of an arena stays, for
    /// the next block.
    fn release_memory(&mut self) -> u64 {
        if let SourceMemory::Arena(buffer) = &mut self.extent {
            buffer.free();
            self.uses.forget_readers();
            return 0;
        }
        let extent = mem::replace(&mut self.extent, SourceMemory::Released);
        let SourceMemory::Driver(memory, device, _grant) = extent else {
            drop(extent);
            self.uses.forget_readers();
            return 0;
        };
        let mut waits = 0;
        let writer = &self.uses.writer;
        for reader in &self.uses.before(writer, Access::Write) {
            // Captured work is not pending, and neither the device nor the host could wait for it.
            if device.is_capturing(reader).unwrap_or(false) {
                continue;
            }
            // If the device cannot wait, the host does. If that fails too, no work is pending any more.
            let need = Need { requested: 0, class: memory.len() };
            match need.before(&device, [(reader, None)], writer, WaitFor::Reuse) {
                Ok((more, _)) => waits += more,
                Err(_) => _ = device.synchronize(reader),
            }
        }
        device.free_on(memory, writer);
        self.uses.forget_readers();
        waits
    }

    fn empty(&mut self, backend_state: &mut BackendState) -> bool {
        match &mut self.extent {
            SourceMemory::Arena(buffer) => buffer.empty(backend_state),
            SourceMemory::Direct(..) | SourceMemory::Driver(..) | SourceMemory::Released => false,
        }
    }

    fn is_emptied(&self) -> bool {
        matches!(&self.extent, SourceMemory::Arena(buffer) if buffer.is_emptied())
    }

    fn address(&self) -> Option<(u64, bool)> {
        self.extent.address()
    }

    fn ticket(&mut self) -> &mut Option<Ticket> {
        &mut self.ticket
    }

    fn user_ids(&self, backend_state: &BackendState) -> SmallVec<[StreamId; 2]> {
        match &self.extent {
            SourceMemory::Arena(buffer) => buffer.user_ids_in(backend_state),
            _ => self.uses.ids(),
        }
    }

    fn mark(&self, pool: &PoolCore) -> u64 {
        record_markers::<B>(pool, self.users())
    }
}
