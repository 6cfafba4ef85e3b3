//! Requests for memory at an address, as the return to an earlier state of live blocks makes them.

use crate::error::{Error, Shortage};
use crate::heap::request::{Position, Request, Reservation};
use crate::heap::store::{Accept, Borrowed, SourceMemory};
use crate::heap::{Block, PoolCore};
use crate::source::Key;
use crate::streams::Need;
use std::sync::Arc;
use vrampool_backend::Backend;

/// Allocates a block at an address, of idle memory or an arena that no pool above has, ordered after the users of
/// the memory. Returns `None` if there is none.
pub(crate) fn allocate_at<B: Backend>(
    pool: &Arc<PoolCore>,
    address: u64,
    bytes: u64,
    stream: &B::Stream,
) -> Result<Option<Box<Block>>, Error> {
    pool.check_device(stream)?;
    let class = pool.class_of(bytes).ok_or_else(|| pool.too_large(bytes))?;
    let (key, position) = (Key { kind: pool.kind, class }, &Position::new(pool));
    let request = Request::<B> { pool, key, requested: bytes, stream, announced: None, position };
    let supply = request.supply();
    let capture = supply.device.capture_of(stream)?;
    if let Some(mut block) = take_at(pool, address, key) {
        pool.depot().count_served(&mut block, key, bytes);
        return request.hand_over(block, Accept::Any, capture).map(Some);
    }
    let Some(arena) = supply.exclusive_arena().filter(|_| !supply.asks_driver(key)) else {
        return Ok(None);
    };
    let Some(extent) = arena.allocate_at(address, class, stream)? else { return Ok(None) };
    let reserved = Reservation::at_once(pool, &mut pool.depot(), key);
    let reserved = reserved.map_or_else(|| request.reserve(false), |of| Ok(Some(of)))?;
    reserved.map(|of| request.make(of, || Ok(SourceMemory::Arena(extent)))).transpose()
}

/// Checks that the limits have room for blocks of `bytes` in place of the live ones.
///
/// # Errors
/// [`Error::OutOfMemory`] of the limit that has no room.
pub(crate) fn check_room<B: Backend>(pool: &PoolCore, bytes: u64) -> Result<(), Error> {
    let refusing = pool.depot().accounts.without_room_for(bytes);
    let Some((height, limit)) = refusing else { return Ok(()) };
    let (need, position) = (Need { requested: bytes, class: bytes }, Position::new(pool));
    let mut error = position.lack::<B>(need, Shortage::Limit(limit), Some(height));
    // They make room.
    error.held_bytes = error.held_bytes.saturating_sub(error.live_bytes);
    (error.live_bytes, error.live_requested_bytes) = (0, 0);
    position.count_out_of_memory(&error, false);
    Err(error.into())
}

/// Takes the idle block at an address, of the class of `key` or, if it was borrowed, of a larger one.
fn take_at(pool: &PoolCore, address: u64, key: Key) -> Option<Box<Block>> {
    let idle = pool.depot().buckets.idle_counts();
    let idle = idle.into_iter().filter(|(of, _)| of.kind == key.kind && of.class >= key.class);
    let mut blocks = idle.flat_map(|(of, count)| (0..count).map_while(move |_| Borrowed::oldest(pool, of)));
    blocks.find(|block| block.address() == Some(address)).and_then(Borrowed::keep)
}
