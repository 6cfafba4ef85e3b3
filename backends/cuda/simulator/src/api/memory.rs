//! Memory of devices and pinned memory of the host.

use crate::boundary::{exports, put, put_optional};
use crate::code::Code;
use crate::memory::{Area, Source};
use crate::world::World;
use std::ffi::{c_int, c_uint, c_void};

/// `CU_POINTER_ATTRIBUTE_CONTEXT` and others that are answered.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const DEVICE_POINTER: c_int = 3;
const HOST_POINTER: c_int = 4;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;

exports! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |call| {
        let mut world = call.world();
        let device = world.current_device()?;
        let (left, all) = (world.free_bytes(device), world.settings.memory);
        put(free, left as usize)?;
        put(total, all as usize)
    }

    fn cuMemAlloc_v2(to: *mut u64, bytes: usize) |call| {
        let mut world = call.world();
        let context = world.current()?;
        if to.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        world.check_unsafe_call()?;
        let address = world.allocate(context, bytes as u64, Source::Device)?;
        put(to, address)
    }

    fn cuMemAllocManaged(to: *mut u64, bytes: usize, flags: c_uint) |call| {
        let mut world = call.world();
        let context = world.current()?;
        if to.is_null() || !(1..=2).contains(&flags) {
            return Err(Code::INVALID_VALUE);
        }
        world.check_unsafe_call()?;
        let address = world.allocate(context, bytes as u64, Source::Managed)?;
        put(to, address)
    }

    fn cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, flags: c_uint) |call| {
        let mut world = call.world();
        let context = world.current()?;
        if to.is_null() || flags & !7 != 0 {
            return Err(Code::INVALID_VALUE);
        }
        world.check_unsafe_call()?;
        let address = world.allocate(context, bytes as u64, Source::Pinned)?;
        put(to, std::ptr::with_exposed_provenance_mut(address as usize))
    }

    fn cuMemFree_v2(address: u64) |call| {
        let mut world = call.world();
        if address == 0 {
            return Ok(());
        }
        world.current()?;
        world.check_unsafe_call()?;
        if world.pool_with(address).is_some() {
            return world.free_pooled(address);
        }
        let is = |source| matches!(source, Source::Device | Source::Managed | Source::Graph);
        World::free(&mut world, address, is)
    }

    fn cuMemFreeHost(start: *mut c_void) |call| {
        let mut world = call.world();
        if start.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        world.current()?;
        world.check_unsafe_call()?;
        World::free(&mut world, start.expose_provenance() as u64, |source| source == Source::Pinned)
    }

    fn cuMemHostGetDevicePointer_v2(to: *mut u64, start: *mut c_void, flags: c_uint) |call| {
        let address = start.expose_provenance() as u64;
        match call.world().memory.area(address) {
            Some((_, Area::Allocation(allocation))) if allocation.source == Source::Pinned => put(to, address),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64) |call| {
        let mut world = call.world();
        world.current()?;
        let (start, bytes) = world.memory.area(address).map(|(start, area)| (start, area.bytes())).ok_or(Code::NOT_FOUND)?;
        put_optional(base, start);
        put_optional(size, bytes as usize);
        Ok(())
    }

    fn cuPointerGetAttribute(to: *mut c_void, attribute: c_int, address: u64) |call| {
        let world = call.world();
        let Some((_, area)) = world.memory.area(address) else { return Err(Code::INVALID_VALUE) };
        let (context, device, source) = match area {
            Area::Allocation(allocation) => (Some(allocation.context), allocation.device, allocation.source),
            Area::Reservation(reservation) => {
                let (start, _) = world.memory.area(address).ok_or(Code::INVALID_VALUE)?;
                let (_, mapping) = reservation.mapping_at(address - start).ok_or(Code::INVALID_VALUE)?;
                let device = world.memory.physical.get(&mapping.physical).map_or(0, |physical| physical.device);
                (None, device, Source::Device)
            }
        };
        let is_host = source == Source::Pinned;
        match attribute {
            CONTEXT => {
                let handle = context.and_then(|context| world.contexts.get(&context)).map_or(0, |context| context.handle);
                put(to.cast::<usize>(), handle)
            }
            MEMORY_TYPE => put(to.cast::<c_uint>(), if is_host { 1 } else { 2 }),
            DEVICE_POINTER => put(to.cast::<u64>(), address),
            HOST_POINTER if is_host || source == Source::Managed => put(to.cast::<u64>(), address),
            IS_MANAGED => put(to.cast::<c_uint>(), c_uint::from(source == Source::Managed)),
            DEVICE_ORDINAL => put(to.cast::<c_int>(), device as c_int),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}
