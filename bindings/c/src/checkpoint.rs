//! Private pools without requests, and their return to an earlier state.

use crate::blocks;
use crate::failure::{Failure, Status};
use crate::memory::Memory;
use crate::pool::CPool;
use crate::private::{Captured, Id, Private};
use crate::scopes;
use crate::streams::{self, Named};
use crate::uses;
use std::sync::Arc;
use vrampool::internal;

/// A block as it was live in a private pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) address: u64,
    pub(crate) requested: u64,
    /// The handle of its stream.
    pub(crate) stream: usize,
}

impl CPool {
    /// Makes a private pool without requests, or counts one more use of it.
    pub(crate) fn create_private(&self, id: Id) -> Result<(), Failure> {
        let tagged = scopes::current(self.handle).unwrap_or_else(|| Arc::clone(&self.main));
        self.captures.create(id, tagged).map(drop)
    }

    /// Replaces the live blocks of a private pool. If a limit has no room for the wanted ones, nothing is freed.
    pub(crate) fn restore_private(&self, private: &Arc<Private>, wanted: &[Wanted]) -> Result<(), Failure> {
        let (mut own, mut live) = (None, Vec::new());
        if !wanted.is_empty() {
            let sizes = wanted.iter().map(|of| of.requested);
            let serving = private.serving(sizes.clone().fold(0, u64::saturating_add))?;
            internal::check_room(&serving.pool, sizes)?;
            own = Some(serving);
        }
        blocks::each_of(self.handle, |address, held| {
            if matches!(&held.memory, Memory::Captured(captured) if Arc::ptr_eq(&captured.home, private)) {
                live.push(address);
            }
        });
        for address in live {
            uses::free_any(address, |_| Ok(()))?;
        }
        let Some(own) = own else { return Ok(()) };
        for &Wanted { address, requested, stream } in wanted {
            let epoch = streams::epoch();
            let (buffer, named) = self.home.with_stream(stream, |of| {
                let buffer = internal::allocate_at(&own.pool, address, requested, of)?;
                Ok((buffer.ok_or_else(|| not_kept(address))?, Named::new(stream, of, epoch)))
            })?;
            let captured = Captured { buffer, home: Arc::clone(private) };
            self.note(address, named, Memory::Captured(Box::new(captured)))?;
        }
        Ok(())
    }
}

#[cold]
fn not_kept(address: u64) -> Failure {
    let text = format!("the private pool has no free memory at {address:#x}, where the state has a block");
    Failure::new(Status::INVALID_POINTER, text)
}
