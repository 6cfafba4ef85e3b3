//! Virtual memory.

use crate::boundary::{exports, get, get_many, put};
use crate::code::{Answer, Code};
use crate::objects::handle::Object;
use crate::objects::memory::Area;
use crate::objects::virtual_memory::Physical;
use crate::pages::{duplicate, identify, memory_file};
use crate::world::World;
use std::collections::{BTreeMap, HashSet};
use std::ffi::{c_int, c_ulonglong, c_void};

/// `CUmemAllocationProp`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Properties {
    kind: c_int,
    shareable: c_int,
    location: Location,
    windows: usize,
    compression: u8,
    direct_rdma: u8,
    usage: u16,
    rest: [u8; 4],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Location {
    pub(super) kind: c_int,
    pub(super) device: c_int,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Access {
    pub(super) location: Location,
    pub(super) flags: c_int,
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, and the one for whole clusters.
pub(super) const FILE_DESCRIPTOR: c_int = 1;
const FABRIC: c_int = 8;

exports! {
    fn cuMemGetAllocationGranularity(to: *mut usize, properties: *const c_void, option: c_int) |call| {
        let world = call.world();
        check(&world, get(properties.cast())?)?;
        if !(0..=1).contains(&option) {
            return Err(Code::INVALID_VALUE);
        }
        let granularity = world.settings.granularity as usize;
        put(to, granularity)
    }

    fn cuMemAddressReserve(to: *mut u64, bytes: usize, alignment: usize, wished: u64, flags: c_ulonglong) |call| {
        if flags != 0 || to.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let address = call.world().reserve(bytes as u64, alignment as u64, wished)?;
        put(to, address)
    }

    fn cuMemAddressFree(address: u64, bytes: usize) |call| {
        call.world().free_addresses(address, bytes as u64)
    }

    fn cuMemCreate(to: *mut usize, bytes: usize, properties: *const c_void, flags: c_ulonglong) |call| {
        let mut world = call.world();
        let properties: Properties = get(properties.cast())?;
        check(&world, properties)?;
        world.device(properties.location.device)?;
        world.collect_exports();
        if properties.direct_rdma != 0 && world.settings.direct_rdma != 0 {
            return Err(Code(world.settings.direct_rdma));
        }
        if flags != 0 || bytes == 0 || !(bytes as u64).is_multiple_of(world.settings.granularity) {
            return Err(Code::INVALID_VALUE);
        }
        if bytes as u64 > world.free_bytes(properties.location.device as usize) {
            return Err(Code::OUT_OF_MEMORY);
        }
        let physical = Physical {
            bytes: bytes as u64,
            device: properties.location.device as usize,
            file: memory_file(bytes as u64)?,
            shareable: properties.shareable,
            direct_rdma: properties.direct_rdma != 0,
            handles: BTreeMap::new(),
            imported: HashSet::new(),
            exported: Vec::new(),
            mapped: 0,
            is_imported: false,
        };
        let number = world.create_physical(physical)?;
        put(to, world.add_handle_to(number))
    }

    fn cuMemRelease(handle: usize) |call| {
        let mut world = call.world();
        let number = world.physical_of(handle)?;
        let physical = world.memory.physical.get_mut(&number).ok_or(Code::INVALID_VALUE)?;
        if let Some(references) = physical.handles.get_mut(&handle).filter(|references| **references > 1) {
            *references -= 1;
            return Ok(());
        }
        physical.handles.remove(&handle);
        physical.imported.remove(&handle);
        world.handles.remove(handle);
        world.drop_physical(number);
        Ok(())
    }

    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: usize, flags: c_ulonglong) |call| {
        let mut world = call.world();
        let number = world.physical_of(handle)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if offset != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        world.map(address, bytes as u64, number)
    }

    fn cuMemUnmap(address: u64, bytes: usize) |call| {
        call.world().unmap_range(address, bytes as u64)
    }

    fn cuMemSetAccess(address: u64, bytes: usize, list: *const c_void, count: usize) |call| {
        let mut world = call.world();
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        for access in get_many(list.cast::<Access>(), count)? {
            if access.location.kind != 1 || ![0, 1, 3].contains(&access.flags) {
                return Err(Code::INVALID_VALUE);
            }
            world.device(access.location.device).map_err(|_| Code::INVALID_VALUE)?;
            world.set_access(address, bytes as u64, access.location.device as usize, access.flags)?;
        }
        Ok(())
    }

    fn cuMemGetAccess(to: *mut c_ulonglong, location: *const c_void, address: u64) |call| {
        let world = call.world();
        let location: Location = get(location.cast())?;
        let Some((start, Area::Reservation(reservation))) = world.memory.area(address) else {
            return Err(Code::INVALID_VALUE);
        };
        let (_, mapping) = reservation.mapping_at(address - start).ok_or(Code::INVALID_VALUE)?;
        let device = location.device as usize;
        let flags = if mapping.access.contains(&device) { 3 } else { u64::from(mapping.read_only.contains(&device)) };
        put(to, flags)
    }

    fn cuMemRetainAllocationHandle(to: *mut usize, address: *mut c_void) |call| {
        let mut world = call.world();
        let address = address.expose_provenance() as u64;
        let Some((start, Area::Reservation(reservation))) = world.memory.area(address) else {
            return Err(Code::INVALID_VALUE);
        };
        let (_, mapping) = reservation.mapping_at(address - start).ok_or(Code::INVALID_VALUE)?;
        let number = mapping.physical;
        let physical = world.memory.physical.get_mut(&number).ok_or(Code::INVALID_VALUE)?;
        match physical.handles.iter_mut().next() {
            Some((&handle, references)) => {
                *references += 1;
                put(to, handle)
            }
            None => put(to, world.add_handle_to(number)),
        }
    }

    fn cuMemGetAllocationPropertiesFromHandle(to: *mut c_void, handle: usize) |call| {
        let mut world = call.world();
        let number = world.physical_of(handle)?;
        let physical = world.memory.physical.get(&number).ok_or(Code::INVALID_VALUE)?;
        let elsewhere = world.settings.foreign_imports && physical.shareable != 0;
        let is_imported = physical.imported.contains(&handle);
        let properties = Properties {
            kind: 1,
            shareable: if is_imported { 0 } else { physical.shareable },
            location: Location { kind: 1, device: physical.device as c_int + c_int::from(elsewhere) },
            windows: 0,
            compression: 0,
            direct_rdma: u8::from(physical.direct_rdma),
            usage: 0,
            rest: [0; 4],
        };
        put(to.cast(), properties)
    }

    fn cuMemExportToShareableHandle(to: *mut c_void, handle: usize, kind: c_int, flags: c_ulonglong) |call| {
        let mut world = call.world();
        let number = world.physical_of(handle)?;
        let physical = world.memory.physical.get_mut(&number).ok_or(Code::INVALID_VALUE)?;
        if physical.shareable & kind == 0 || kind != FILE_DESCRIPTOR || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let file = duplicate(physical.file)?;
        physical.exported.push(file);
        put(to.cast(), file)
    }

    fn cuMemImportFromShareableHandle(to: *mut usize, from: *mut c_void, kind: c_int) |call| {
        let mut world = call.world();
        if kind != FILE_DESCRIPTOR {
            return Err(if kind == FABRIC { Code::NOT_PERMITTED } else { Code::INVALID_VALUE });
        }
        let file = c_int::try_from(from.addr()).map_err(|_| Code::UNKNOWN)?;
        let (bytes, own) = identify(file).filter(|(bytes, _)| *bytes > 0).ok_or(Code::UNKNOWN)?;
        let known = world.memory.physical.iter();
        let known = known.filter(|(_, physical)| identify(physical.file).is_some_and(|(_, number)| number == own));
        let known = known.map(|(&number, _)| number).next();
        let number = match known {
            Some(number) => number,
            None => world.create_physical(Physical {
                bytes,
                device: 0,
                file: duplicate(file)?,
                shareable: FILE_DESCRIPTOR,
                direct_rdma: false,
                handles: BTreeMap::new(),
                imported: HashSet::new(),
                exported: Vec::new(),
                mapped: 0,
                is_imported: true,
            })?,
        };
        let handle = world.add_handle_to(number);
        if let Some(physical) = world.memory.physical.get_mut(&number) {
            physical.imported.insert(handle);
        }
        put(to, handle)
    }
}

impl World {
    fn add_handle_to(&mut self, number: u64) -> usize {
        let handle = self.handles.add(Object::Physical(number));
        if let Some(physical) = self.memory.physical.get_mut(&number) {
            physical.handles.insert(handle, 1);
        }
        handle
    }
}

/// Checks all but the device, which some calls do not look at.
fn check(world: &World, properties: Properties) -> Answer {
    if !world.settings.virtual_memory {
        return Err(Code::NOT_SUPPORTED);
    }
    if properties.kind != 1 || properties.location.kind != 1 {
        return Err(Code::INVALID_VALUE);
    }
    if properties.shareable == FABRIC {
        return Err(Code::NOT_PERMITTED);
    }
    if ![0, FILE_DESCRIPTOR].contains(&properties.shareable) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(())
}
