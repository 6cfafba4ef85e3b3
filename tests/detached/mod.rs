//! The least that a sleep is: an arena's memory is detached and attached again, with its contents kept here.

use std::ops::Range;
use std::time::Duration;
use vrampool::arena::DeviceArena;
use vrampool::backend::spi::wait_out;
use vrampool::{Backend, Error, Region, RegionMut};

/// The contents of a detached arena's blocks.
pub(crate) type Contents = Vec<(Range<u64>, Vec<u8>)>;

/// Detaches the arena's memory. Returns the contents; `None` if it is detached.
pub(crate) fn detach<B: Backend>(arena: &DeviceArena<B>) -> Result<Option<Contents>, Error> {
    let mut kept = Contents::new();
    Ok(detach_keeping(arena, |contents| kept = contents)?.then_some(kept))
}

/// As [`detach`], passing the contents on before memory is unmapped. Returns false if the arena is detached.
pub(crate) fn detach_keeping<B: Backend>(
    arena: &DeviceArena<B>,
    keep: impl FnOnce(Contents),
) -> Result<bool, Error> {
    let Some(detaching) = arena.detach(Duration::ZERO)? else { return Ok(false) };
    let stream = arena.device().create_stream()?;
    let mut contents = Vec::new();
    for extent in detaching.live() {
        let length = extent.end - extent.start;
        let mut bytes = vec![0; length as usize];
        let region = Region::new(detaching.memory(), extent.start, length, &stream)?;
        arena.device().download(&stream, region, &mut bytes)?;
        contents.push((extent.clone(), bytes));
    }
    keep(contents);
    detaching.unmap()?.commit(|_| {});
    Ok(true)
}

/// Attaches memory with the contents of the blocks that are still live, if they were kept. Returns the bytes that were
/// taken; `None` if the arena is attached.
pub(crate) fn attach<B: Backend>(arena: &DeviceArena<B>, contents: &Contents) -> Result<Option<u64>, Error> {
    let Some(attaching) = arena.attach()? else { return Ok(None) };
    let stream = arena.device().create_stream()?;
    let mut kept = contents.iter().filter(|(extent, _)| attaching.live().contains(extent));
    let uploaded = kept.try_for_each(|(extent, bytes)| {
        let length = extent.end - extent.start;
        let region = RegionMut::new(attaching.memory(), extent.start, length, &stream)?;
        arena.device().upload(&stream, bytes, region)
    });
    // Also before memory is unmapped again.
    wait_out(arena.device(), &stream)?;
    uploaded?;
    Ok(Some(attaching.commit()))
}
