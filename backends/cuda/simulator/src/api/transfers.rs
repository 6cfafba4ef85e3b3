//! Copies and fills, in the order of a stream or at once.

use crate::boundary::{exports, read_bytes};
use crate::code::{Answer, Code};
use crate::kernels::Range;
use crate::objects::memory::Area;
use crate::objects::work::Work;
use crate::world::World;
use parking_lot::MutexGuard;
use std::ffi::{c_uchar, c_uint, c_void};
use std::sync::Arc;

exports! {
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(stream)?;
        copy(&mut world, to, from, bytes, stream)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(stream)?;
        copy(&mut world, to, from.expose_provenance() as u64, bytes, stream)
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(stream)?;
        copy(&mut world, to.expose_provenance() as u64, from, bytes, stream)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(stream)?;
        copy(&mut world, to, from, bytes, stream)
    }

    fn cuMemcpy(to: u64, from: u64, bytes: usize) |call| {
        at_once(call.world(), to, from, bytes)
    }

    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) |call| {
        at_once(call.world(), to, from.expose_provenance() as u64, bytes)
    }

    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) |call| {
        at_once(call.world(), to.expose_provenance() as u64, from, bytes)
    }

    fn cuMemsetD8Async(address: u64, value: c_uchar, count: usize, stream: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(stream)?;
        fill(&mut world, address, vec![value], count, stream)
    }

    fn cuMemsetD32_v2(address: u64, value: c_uint, count: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(0)?;
        fill(&mut world, address, value.to_le_bytes().to_vec(), count, stream)
    }

    fn cuMemsetD8_v2(address: u64, value: c_uchar, count: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(0)?;
        fill(&mut world, address, vec![value], count, stream)
    }
}

/// A range of the driver's memory that an operation names must be there, and accessible, when the call is
/// made. `false` for memory that is not the driver's.
fn check(world: &mut World, address: u64, bytes: u64, write: bool, stream: u64) -> Answer<bool> {
    let device = {
        let context = world.stream(stream)?.context;
        world.device_of(context)
    };
    let Some((start, area)) = world.memory.area(address) else { return Ok(false) };
    let (first, end) = (address - start, (address - start).saturating_add(bytes));
    let is_there = match area {
        Area::Allocation(allocation) => end <= allocation.bytes,
        Area::Reservation(reservation) => reservation.is_accessible(first, end, device, write),
    };
    if is_there { Ok(true) } else { Err(Code::INVALID_VALUE) }
}

fn fill(world: &mut World, address: u64, value: Vec<u8>, count: usize, stream: u64) -> Answer {
    if count == 0 {
        return Ok(());
    }
    let bytes = (count as u64).checked_mul(value.len() as u64).ok_or(Code::INVALID_VALUE)?;
    if !address.is_multiple_of(value.len() as u64) || !check(world, address, bytes, true, stream)? {
        return Err(Code::INVALID_VALUE);
    }
    // Memory of another device must be accessible, as it must be to a kernel; a copy needs no access.
    let context = world.stream(stream)?.context;
    if !world.is_accessible(Range { address, bytes, write: true, host: false }, context, true) {
        return Err(Code::INVALID_VALUE);
    }
    world.submit(stream, Work::Fill { address, value, count: count as u64 })
}

fn copy(world: &mut MutexGuard<'_, World>, to: u64, from: u64, bytes: usize, stream: u64) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    let bytes64 = bytes as u64;
    let to_driver = check(world, to, bytes64, true, stream)?;
    let from_driver = check(world, from, bytes64, false, stream)?;
    if to == 0 || from == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let captures = world.capturing(stream)?.is_some();
    if !from_driver && to_driver && !captures {
        // Pageable memory of the host is read before the call returns.
        let bytes = Arc::new(read_bytes(from, bytes));
        return world.submit(stream, Work::Upload { to, bytes });
    }
    let (to_host, from_host) = (!to_driver, !from_driver);
    world.submit(stream, Work::Copy { to, from, bytes: bytes64, to_host, from_host })?;
    if !to_driver && !captures {
        // Pageable memory of the host is written before the call returns.
        World::synchronize_stream(world, stream)?;
    }
    Ok(())
}

/// On the null stream, and done when the call returns.
fn at_once(mut world: MutexGuard<'static, World>, to: u64, from: u64, bytes: usize) -> Answer {
    let stream = world.stream_of(0)?;
    world.check_unsafe_call()?;
    copy(&mut world, to, from, bytes, stream)?;
    World::synchronize_stream(&mut world, stream)
}
