//! Memory pools.

use super::virtual_memory::{Access, FILE_DESCRIPTOR, Location};
use crate::boundary::{exports, get, get_many, put};
use crate::code::{Answer, Code};
use crate::objects::memory::Area;
use crate::objects::work::Work;
use crate::world::World;
use std::ffi::{c_int, c_ulonglong, c_void};

/// The beginning of `CUmemPoolProps`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Properties {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    windows: usize,
    most_bytes: usize,
}

exports! {
    fn cuDeviceGetDefaultMemPool(to: *mut usize, device: c_int) |call| {
        let mut world = call.world();
        world.device(device)?;
        let pool = world.default_pool(device as usize)?;
        let handle = world.pool(pool)?.handle;
        put(to, handle)
    }

    fn cuDeviceGetMemPool(to: *mut usize, device: c_int) |call| {
        let mut world = call.world();
        world.device(device)?;
        let pool = world.current_pool(device as usize)?;
        let handle = world.pool(pool)?.handle;
        put(to, handle)
    }

    fn cuDeviceSetMemPool(device: c_int, pool: usize) |call| {
        let mut world = call.world();
        let pool = world.pool_of(pool)?;
        world.device(device)?.current_pool = Some(pool);
        Ok(())
    }

    fn cuMemPoolCreate(to: *mut usize, properties: *const c_void) |call| {
        let mut world = call.world();
        let properties: Properties = get(properties.cast())?;
        let is_shareable = [0, FILE_DESCRIPTOR].contains(&properties.handle_types);
        if to.is_null() || properties.kind != 1 || properties.location.kind != 1 || !is_shareable {
            return Err(Code::INVALID_VALUE);
        }
        world.device(properties.location.device).map_err(|_| Code::INVALID_VALUE)?;
        if !world.settings.pools {
            return Err(Code::NOT_SUPPORTED);
        }
        let device = properties.location.device as usize;
        let pool = world.create_pool(device, false, properties.handle_types, properties.most_bytes as u64);
        let handle = world.pool(pool)?.handle;
        put(to, handle)
    }

    fn cuMemPoolDestroy(handle: usize) |call| {
        let mut world = call.world();
        let pool = world.pool_of(handle)?;
        world.destroy_pool(pool)
    }

    fn cuMemPoolTrimTo(handle: usize, keep: usize) |call| {
        let mut world = call.world();
        let pool = world.pool_of(handle)?;
        world.check_unsafe_call()?;
        world.trim_pool(pool, keep as u64)
    }

    fn cuMemPoolGetAttribute(handle: usize, attribute: c_int, to: *mut c_void) |call| {
        let mut world = call.world();
        let pool = world.pool_of(handle)?;
        let of = world.pool(pool)?;
        let flag = |index: usize| c_int::from(of.reuse.get(index).copied().unwrap_or(false));
        match attribute {
            1..=3 => put(to.cast::<c_int>(), flag(attribute as usize - 1)),
            4 => put(to.cast::<u64>(), of.threshold),
            5 => put(to.cast::<u64>(), of.reserved),
            6 => put(to.cast::<u64>(), of.reserved_high),
            7 => put(to.cast::<u64>(), of.used),
            8 => put(to.cast::<u64>(), of.used_high),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemPoolSetAttribute(handle: usize, attribute: c_int, from: *const c_void) |call| {
        let mut world = call.world();
        let pool = world.pool_of(handle)?;
        let of = world.pool(pool)?;
        match attribute {
            1..=3 => {
                let value = get(from.cast::<c_int>())? != 0;
                if let Some(flag) = of.reuse.get_mut(attribute as usize - 1) {
                    *flag = value;
                }
            }
            4 => of.threshold = get(from.cast::<u64>())?,
            6 if get(from.cast::<u64>())? == 0 => of.reserved_high = of.reserved,
            8 if get(from.cast::<u64>())? == 0 => of.used_high = of.used,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    fn cuMemPoolSetAccess(handle: usize, list: *const c_void, count: usize) |call| {
        let mut world = call.world();
        let pool = world.pool_of(handle)?;
        for access in get_many(list.cast::<Access>(), count)? {
            world.device(access.location.device).map_err(|_| Code::INVALID_VALUE)?;
            let of = world.pool(pool)?;
            let device = access.location.device as usize;
            match access.flags {
                3 => {
                    of.peers.insert(device);
                }
                _ if device == of.device => return Err(Code::INVALID_DEVICE),
                _ => {
                    of.peers.remove(&device);
                }
            }
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(to: *mut c_int, handle: usize, location: *const c_void) |call| {
        let mut world = call.world();
        let (pool, location): (_, Location) = (world.pool_of(handle)?, get(location.cast())?);
        let has = world.pool(pool)?.peers.contains(&(location.device as usize));
        put(to, if has { 3 } else { 0 })
    }

    fn cuMemPoolExportToShareableHandle(to: *mut c_void, handle: usize, kind: c_int, flags: c_ulonglong) |call| {
        let mut world = call.world();
        let pool = world.pool_of(handle)?;
        match world.pool(pool)?.handle_types & kind {
            0 => Err(Code::INVALID_VALUE),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    fn cuMemAllocAsync(to: *mut u64, bytes: usize, stream: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(stream)?;
        let context = world.stream(stream)?.context;
        let device = world.device_of(context);
        let pool = world.current_pool(device)?;
        allocate(&mut world, to, bytes, pool, stream)
    }

    fn cuMemAllocFromPoolAsync(to: *mut u64, bytes: usize, pool: usize, stream: usize) |call| {
        let mut world = call.world();
        let (stream, pool) = (world.stream_of(stream)?, world.pool_of(pool)?);
        allocate(&mut world, to, bytes, pool, stream)
    }

    fn cuMemFreeAsync(address: u64, stream: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(stream)?;
        if address == 0 {
            return Ok(());
        }
        if world.capturing(stream)?.is_none() && world.graph_memory.remove(&address) {
            let bytes = world.memory.areas.get(&address).map_or(0, Area::bytes);
            return world.submit(stream, Work::Mark { address, bytes });
        }
        if world.pool_with(address).is_some() || world.capturing(stream)?.is_some() {
            return world.free_in_order(address, stream);
        }
        // Memory of `cuMemAlloc` may be freed this way too.
        World::free(&mut world, address, |source| source == crate::objects::memory::Source::Device)
    }
}

fn allocate(world: &mut World, to: *mut u64, bytes: usize, pool: u64, stream: u64) -> Answer {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    put(to, 0)?;
    if bytes == 0 {
        return Ok(());
    }
    let address = world.allocate_in_order(pool, bytes as u64, stream)?;
    put(to, address)
}
