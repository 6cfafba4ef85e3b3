//! Requests for memory at an address, as the return to an earlier state of live blocks makes them.

use crate::error::Error;
use crate::heap::block::Block;
use crate::heap::core::PoolCore;
use crate::heap::request::Request;
use crate::heap::request::position::Position;
use crate::heap::request::reservation::Reservation;
use crate::heap::store::keep::Borrowed;
use crate::heap::store::supply::SourceMemory;
use crate::source::Key;
use std::sync::Arc;
use vrampool_backend::{Backend, Stream};

impl PoolCore {
    /// Allocates a block at an address, of idle memory or an arena that no pool above has, ordered after the users of
    /// the memory. Returns `None` if there is none.
    pub(crate) fn allocate_at<B: Backend>(
        self: &Arc<Self>,
        address: u64,
        bytes: u64,
        stream: &B::Stream,
    ) -> Result<Option<Box<Block>>, Error> {
        self.check_device(stream)?;
        let class = self.class_of(bytes).ok_or_else(|| self.too_large(bytes))?;
        let (key, position) = (Key { kind: self.kind, class }, &Position::new(self));
        if let Some(block) = self.take_at(address, key) {
            return self.make_live_on::<B>(block, (key, bytes), stream).map(Some);
        }
        let supply = self.supply::<B>();
        let Some(arena) = supply.exclusive_arena().filter(|_| !supply.asks_driver(key)) else {
            return Ok(None);
        };
        let Some(extent) = arena.allocate_at(address, class, stream)? else { return Ok(None) };
        let request = Request { key, requested: bytes, stream, announced: None, position };
        let reserved = Reservation::at_once(self, &mut self.depot(), class);
        let reserved = reserved.map_or_else(|| self.reserve(&request, false), |of| Ok(Some(of)))?;
        reserved.map(|of| self.make(&request, of, || Ok(SourceMemory::Arena(extent)))).transpose()
    }

    /// Takes the idle block at an address, of the class of `key` or, if it was borrowed, of a larger one.
    fn take_at(&self, address: u64, key: Key) -> Option<Box<Block>> {
        let idle = self.depot().buckets.idle_counts();
        let idle = idle.into_iter().filter(|(of, _)| of.kind == key.kind && of.class >= key.class);
        let mut blocks = idle.flat_map(|(of, count)| (0..count).map_while(move |_| self.take_oldest(of)));
        blocks.find(|block| block.address() == Some(address)).and_then(Borrowed::keep)
    }

    /// Makes an idle block that was taken live for `stream`, ordered after its users.
    fn make_live_on<B: Backend>(
        self: &Arc<Self>,
        mut block: Box<Block>,
        (key, requested): (Key, u64),
        stream: &B::Stream,
    ) -> Result<Box<Block>, Error> {
        self.depot().count_served(&mut block, key, requested);
        if block.is_ready_on(stream.id()) {
            return Ok(block);
        }
        let capture = self.supply::<B>().device.capture_of(stream).map_err(Error::from);
        match capture.and_then(|capture| block.take_over::<B>(stream, capture)) {
            Ok(waits) => self.depot().count_hand_over(key, waits),
            Err(error) => {
                Self::release(block);
                return Err(error);
            }
        }
        Ok(block)
    }
}
