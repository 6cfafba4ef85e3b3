//! Memory of devices and pinned memory of the host.

use crate::boundary::{exports, put, put_optional};
use crate::code::Code;
use crate::objects::memory::{Area, Source};
use crate::world::World;
use std::ffi::{c_int, c_uint, c_void};

/// `CU_POINTER_ATTRIBUTE_CONTEXT` and others that are answered.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const DEVICE_POINTER: c_int = 3;
const HOST_POINTER: c_int = 4;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
const BUFFER_ID: c_int = 7;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;
const MAPPED: c_int = 13;
const HANDLE_TYPES: c_int = 14;
const POOL: c_int = 17;

/// `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTALLOC_DEVICEMAP`
const PORTABLE: c_uint = 1;
const MAPPED_HOST: c_uint = 2;
/// Flags of `cuMemHostRegister` that have no effect here: portable, mapped, read only.
const REGISTER_FLAGS: c_uint = 1 | 2 | 8;

exports! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |call| {
        let mut world = call.world();
        let device = world.current_device()?;
        world.collect_exports();
        let (left, all) = (world.free_bytes(device), world.settings.memory);
        put_optional(free, left as usize);
        put_optional(total, all as usize);
        Ok(())
    }

    fn cuMemAlloc_v2(to: *mut u64, bytes: usize) |call| {
        let mut world = call.world();
        let context = world.current()?;
        if to.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        world.check_unsafe_call()?;
        put(to, 0)?;
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
        put(to, std::ptr::null_mut())?;
        if bytes == 0 {
            return Ok(());
        }
        let address = world.allocate(context, bytes as u64, Source::Pinned)?;
        if let Some(Area::Allocation(allocation)) = world.memory.areas.get_mut(&address) {
            // All pinned memory is mapped, and portable memory is not reported as such.
            allocation.flags = (flags & !PORTABLE) | MAPPED_HOST;
        }
        put(to, std::ptr::with_exposed_provenance_mut(address as usize))
    }

    fn cuMemHostGetFlags(to: *mut c_uint, start: *mut c_void) |call| {
        let world = call.world();
        match world.memory.area(start.expose_provenance() as u64) {
            Some((_, Area::Allocation(allocation))) if allocation.source == Source::Pinned => put(to, allocation.flags),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: c_uint) |call| {
        let mut world = call.world();
        let context = world.current()?;
        if start.is_null() || bytes == 0 || flags & !REGISTER_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        world.check_unsafe_call()?;
        world.register(context, start.expose_provenance() as u64, bytes as u64)
    }

    fn cuMemHostUnregister(start: *mut c_void) |call| {
        let mut world = call.world();
        world.current()?;
        world.check_unsafe_call()?;
        let address = start.expose_provenance() as u64;
        match world.memory.area(address) {
            Some((at, Area::Allocation(allocation))) if allocation.source == Source::Registered => {
                if at != address {
                    return Err(Code::INVALID_VALUE);
                }
            }
            _ => return Err(Code::HOST_MEMORY_NOT_REGISTERED),
        }
        World::free(&mut world, address, |source| source == Source::Registered)
    }

    fn cuMemFree_v2(address: u64) |call| {
        let mut world = call.world();
        if address == 0 {
            return Ok(());
        }
        world.check_current()?;
        world.check_unsafe_call()?;
        if world.pool_with(address).is_some() {
            return world.free_pooled(address);
        }
        if world.graph_memory.remove(&address) {
            // It is its graph's, and allocated again by the next launch.
            return Ok(());
        }
        let is = |source| matches!(source, Source::Device | Source::Managed);
        World::free(&mut world, address, is)
    }

    fn cuMemFreeHost(start: *mut c_void) |call| {
        let mut world = call.world();
        if start.is_null() {
            return Ok(());
        }
        world.check_current()?;
        world.check_unsafe_call()?;
        World::free(&mut world, start.expose_provenance() as u64, |source| source == Source::Pinned)
    }

    fn cuMemHostGetDevicePointer_v2(to: *mut u64, start: *mut c_void, flags: c_uint) |call| {
        let address = start.expose_provenance() as u64;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        match call.world().memory.area(address) {
            Some((_, Area::Allocation(allocation))) if is_host(allocation.source) => put(to, address),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64) |call| {
        let mut world = call.world();
        world.current()?;
        let (start, bytes) = world.extent(address).ok_or(Code::NOT_FOUND)?;
        put_optional(base, start);
        put_optional(size, bytes as usize);
        Ok(())
    }

    fn cuPointerGetAttribute(to: *mut c_void, attribute: c_int, address: u64) |call| {
        let world = call.world();
        let (start, bytes) = world.extent(address).ok_or(Code::INVALID_VALUE)?;
        let of = world.describe(address).ok_or(Code::INVALID_VALUE)?;
        match attribute {
            CONTEXT => put(to.cast::<usize>(), of.context),
            MEMORY_TYPE => put(to.cast::<c_uint>(), if is_host(of.source) { 1 } else { 2 }),
            DEVICE_POINTER => put(to.cast::<u64>(), address),
            HOST_POINTER if is_host(of.source) || of.source == Source::Managed => put(to.cast::<u64>(), address),
            BUFFER_ID => put(to.cast::<u64>(), of.backing),
            IS_MANAGED => put(to.cast::<c_uint>(), c_uint::from(of.source == Source::Managed)),
            DEVICE_ORDINAL => put(to.cast::<c_int>(), of.device as c_int),
            RANGE_START => put(to.cast::<u64>(), start),
            RANGE_SIZE => put(to.cast::<usize>(), bytes as usize),
            MAPPED => put(to.cast::<u8>(), 1),
            HANDLE_TYPES => put(to.cast::<u64>(), of.handle_types),
            POOL => {
                let pool = world.block(address).and_then(|(pool, ..)| world.pools.get(&pool));
                put(to.cast::<usize>(), pool.map_or(0, |pool| pool.handle))
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// The attributes of a pointer.
struct Described {
    source: Source,
    backing: u64,
    device: usize,
    /// The handle of its context; 0 for virtual memory, which has none.
    context: usize,
    handle_types: u64,
}

impl World {
    /// The allocation or the mapping around an address: its first address, and its size in bytes.
    fn extent(&self, address: u64) -> Option<(u64, u64)> {
        match self.memory.area(address)? {
            (_, Area::Allocation(allocation)) if matches!(allocation.source, Source::Chunk(_)) => {
                self.block(address).map(|(_, start, bytes)| (start, bytes))
            }
            (start, Area::Allocation(allocation)) => Some((start, allocation.bytes)),
            (start, Area::Reservation(reservation)) => {
                let (offset, mapping) = reservation.mapping_at(address - start)?;
                Some((start + offset, mapping.bytes))
            }
        }
    }

    fn describe(&self, address: u64) -> Option<Described> {
        match self.memory.area(address)? {
            (_, Area::Allocation(allocation)) => Some(Described {
                source: allocation.source,
                backing: allocation.backing,
                device: allocation.device,
                context: self.contexts.get(&allocation.context).map_or(0, |context| context.handle),
                handle_types: 0,
            }),
            (start, Area::Reservation(reservation)) => {
                let (_, mapping) = reservation.mapping_at(address - start)?;
                let physical = self.memory.physical.get(&mapping.physical)?;
                Some(Described {
                    source: Source::Device,
                    backing: mapping.physical,
                    device: physical.device,
                    context: 0,
                    handle_types: physical.shareable as u64,
                })
            }
        }
    }
}

fn is_host(source: Source) -> bool {
    matches!(source, Source::Pinned | Source::Registered)
}
