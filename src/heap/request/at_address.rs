//! Requests for memory at an address, as the return to an earlier state of live blocks makes them.

use crate::error::{Error, Shortage};
use crate::heap::block::Block;
use crate::heap::core::PoolCore;
use crate::heap::request::Request;
use crate::heap::request::position::Position;
use crate::heap::request::reservation::Reservation;
use crate::heap::store::keep::Borrowed;
use crate::heap::store::supply::SourceMemory;
use crate::source::Key;
use std::sync::Arc;
use vrampool_backend::Backend;

impl PoolCore {
    /// Allocates a block at an address: of its own growing arena, ordered after the users of the memory, else the idle one
    /// there, with its users. Returns `None` if there is none.
    pub(crate) fn allocate_at<B: Backend>(
        self: &Arc<Self>,
        address: u64,
        bytes: u64,
        stream: &B::Stream,
    ) -> Result<Option<Box<Block>>, Error> {
        self.check_device(stream)?;
        let class = self.class_of(bytes).ok_or_else(|| self.too_large(bytes))?;
        let (key, position) = (Key { kind: self.kind, class }, &Position::new(self));
        let Some(arena) = self.supply::<B>().own_growing_arena() else {
            let counts = self.depot().buckets.idle_counts();
            let count = counts.into_iter().find(|(of, _)| *of == key).map_or(0, |(_, count)| count);
            let mut idle = (0..count).map_while(|_| self.take_oldest(key));
            let found = idle.find(|block| block.address() == Some(address)).and_then(Borrowed::keep);
            return Ok(found.map(|mut block| {
                block.requested = bytes;
                self.depot().accounts.make_live(class, bytes);
                block
            }));
        };
        let Some(extent) = arena.allocate_at(address, class, stream)? else { return Ok(None) };
        let request = Request { key, requested: bytes, stream, announced: None, position };
        let reserved = Reservation::at_once(self, &mut self.depot(), class);
        match reserved {
            Some(reserved) => self.make(&request, reserved, || Ok(SourceMemory::Arena(extent))).map(Some),
            None => Err(self.out_of_memory::<B>(&request, Shortage::Limit(0))),
        }
    }
}
