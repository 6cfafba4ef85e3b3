//! Checks of virtual memory, and of physical memory shared between processes.
//!
//! No check accesses unmapped memory: on a GPU that can destroy the program's context.

use super::support::{Check, Outcome, pattern, refused, require};
use crate::AllocationRequest;
use crate::{
    Backend, BackendError, Capabilities, Memory, Physical, Placement, Region, RegionMut, SharedHandles,
    VirtualMemory,
};

type Virtual<'a, B> = &'a dyn VirtualMemory<Memory = <B as Backend>::Memory>;

fn request(bytes: u64) -> AllocationRequest<'static> {
    AllocationRequest::new(bytes, Placement::Device)
}

/// The device's virtual memory and its granularity.
fn virtual_memory<B: Backend>(device: &B) -> Result<(Virtual<'_, B>, u64), Outcome> {
    let has = device.properties().capabilities.contains(Capabilities::VIRTUAL_MEMORY);
    match device.virtual_memory() {
        Some(memory) if has => Ok((memory, memory.granularity(Placement::Device.into())?)),
        None if !has => Err(Outcome::NotThere("no virtual memory")),
        _ => Err(Outcome::Broken(format!("the capability says {has}, and the method the contrary"))),
    }
}

fn map<B: Backend>(
    memory: Virtual<'_, B>,
    reservation: &B::Memory,
    offset: u64,
    physical: &Physical,
) -> Result<(), BackendError> {
    memory.map(reservation, offset, physical)?;
    memory.set_access(reservation, offset, physical.len())
}

fn read<B: Backend>(
    device: &B,
    stream: &B::Stream,
    reservation: &B::Memory,
    offset: u64,
    bytes: u64,
) -> Result<Vec<u8>, BackendError> {
    let mut read = vec![0; bytes as usize];
    device.download(stream, Region::new(reservation, offset, bytes, stream)?, &mut read)?;
    Ok(read)
}

pub(super) fn mapped_memory_is_memory<B: Backend>(device: &B) -> Check {
    let (memory, page) = virtual_memory(device)?;
    require!(page.is_power_of_two(), "a granularity of {page} is not a power of two");
    let stream = device.create_stream()?;
    let reservation = memory.reserve(4 * page)?;
    require!(reservation.len() == 4 * page, "asked for {} bytes, got {}", 4 * page, reservation.len());
    let [one, two] = [memory.create_physical(&request(page))?, memory.create_physical(&request(page))?];
    require!(one.len() == page, "asked for {page} bytes, got {}", one.len());
    memory.map(&reservation, page, &one)?;
    memory.map(&reservation, 2 * page, &two)?;
    memory.set_access(&reservation, page, 2 * page)?;
    // The handles are not what keeps it.
    drop((one, two));
    let data = pattern(5, page);
    let across = page + page / 2;
    device.fill(&stream, RegionMut::new(&reservation, page, 2 * page, &stream)?, 0x11)?;
    device.upload(&stream, &data, RegionMut::new(&reservation, across, page, &stream)?)?;
    require!(read(device, &stream, &reservation, across, page)? == data, "what was written is not read");
    let before = read(device, &stream, &reservation, page, page / 2)?;
    require!(before.iter().all(|&byte| byte == 0x11), "a write across two mappings left its range");
    let outside = device.allocate(&request(page))?;
    let middle = Region::new(&reservation, across, page, &stream)?;
    device.copy(&stream, middle, RegionMut::whole(&outside, &stream))?;
    let start = RegionMut::new(&reservation, page, page, &stream)?;
    device.copy(&stream, Region::whole(&outside, &stream), start)?;
    require!(read(device, &stream, &reservation, page, page)? == data, "a copy there and back lost data");
    memory.unmap(&reservation, page, 2 * page)?;
    Ok(())
}

pub(super) fn physical_memory_is_seen_wherever_it_is_mapped<B: Backend>(device: &B) -> Check {
    let (memory, page) = virtual_memory(device)?;
    let stream = device.create_stream()?;
    let [here, there] = [memory.reserve(2 * page)?, memory.reserve(page)?];
    let physical = memory.create_physical(&request(page))?;
    for (reservation, offset) in [(&here, 0), (&here, page), (&there, 0)] {
        map::<B>(memory, reservation, offset, &physical)?;
    }
    let (first, second) = (pattern(6, page), pattern(7, page));
    device.upload(&stream, &first, RegionMut::new(&here, 0, page, &stream)?)?;
    require!(read(device, &stream, &here, page, page)? == first, "it is not seen at other addresses");
    require!(read(device, &stream, &there, 0, page)? == first, "it is not seen in another reservation");
    memory.unmap(&here, 0, 2 * page)?;
    device.upload(&stream, &second, RegionMut::whole(&there, &stream))?;
    device.synchronize(&stream)?;
    drop(there);
    map::<B>(memory, &here, page, &physical)?;
    require!(
        read(device, &stream, &here, page, page)? == second,
        "data did not stay while it was mapped nowhere"
    );
    Ok(())
}

pub(super) fn mappings_that_cannot_be_are_refused<B: Backend>(device: &B) -> Check {
    let (memory, page) = virtual_memory(device)?;
    let stream = device.create_stream()?;
    for (bytes, what) in [(0, "no bytes"), (page + 1, "a byte too much"), (page / 2, "half a granule")] {
        refused(&format!("reserving {what}"), memory.reserve(bytes))?;
        refused(&format!("creating {what}"), memory.create_physical(&request(bytes)))?;
    }
    let reservation = memory.reserve(4 * page)?;
    let [one, two] = [memory.create_physical(&request(page))?, memory.create_physical(&request(2 * page))?];
    refused("an offset between granules", memory.map(&reservation, page / 2, &one))?;
    refused("mapping past the end", memory.map(&reservation, 3 * page, &two))?;
    refused("mapping where offsets overflow", memory.map(&reservation, !(page - 1), &two))?;
    refused("physical memory of another backend", memory.map(&reservation, 0, &Physical::new(page, ())))?;
    let plain = device.allocate(&request(4 * page))?;
    refused("mapping into memory that is not a reservation", memory.map(&plain, 0, &one))?;
    refused("access to what is not mapped", memory.set_access(&reservation, 0, page))?;
    refused("unmapping what is not mapped", memory.unmap(&reservation, 0, page))?;
    map::<B>(memory, &reservation, page, &two)?;
    let data = pattern(8, 2 * page);
    device.upload(&stream, &data, RegionMut::new(&reservation, page, 2 * page, &stream)?)?;
    device.synchronize(&stream)?;
    for offset in [page, 2 * page] {
        refused("mapping twice", memory.map(&reservation, offset, &one))?;
        refused("unmapping a part", memory.unmap(&reservation, offset, page))?;
        refused("access to a part", memory.set_access(&reservation, offset, page))?;
    }
    refused("mapping over the start of another", memory.map(&reservation, 0, &two))?;
    refused("unmapping more than is mapped", memory.unmap(&reservation, 0, 4 * page))?;
    refused("access to more than is mapped", memory.set_access(&reservation, page, 3 * page))?;
    refused("unmapping past the end", memory.unmap(&reservation, 3 * page, 2 * page))?;
    refused("unmapping half a granule", memory.unmap(&reservation, page, page / 2))?;
    require!(
        read(device, &stream, &reservation, page, 2 * page)? == data,
        "a call that was refused did something"
    );
    map::<B>(memory, &reservation, 0, &one)?;
    Ok(memory.unmap(&reservation, 0, 3 * page)?)
}

pub(super) fn virtual_memory_goes_in_any_order<B: Backend>(device: &B) -> Check {
    let (memory, page) = virtual_memory(device)?;
    let stream = device.create_stream()?;
    for reservation_first in [true, false] {
        let reservation = memory.reserve(2 * page)?;
        let physical = memory.create_physical(&request(page))?;
        map::<B>(memory, &reservation, page, &physical)?;
        device.fill(&stream, RegionMut::new(&reservation, page, page, &stream)?, 3)?;
        device.synchronize(&stream)?;
        if reservation_first {
            drop(reservation);
            let next = memory.reserve(page)?;
            map::<B>(memory, &next, 0, &physical)?;
            let bytes = read(device, &stream, &next, 0, page)?;
            require!(bytes.iter().all(|&byte| byte == 3), "data went with the reservation");
        } else {
            drop(physical);
            let bytes = read(device, &stream, &reservation, page, page)?;
            require!(bytes.iter().all(|&byte| byte == 3), "data went with the handle, while it was mapped");
        }
    }
    Ok(())
}

pub(super) fn shared_handles_are_to_the_same_memory<B: Backend>(device: &B) -> Check {
    let has = device.properties().capabilities.contains(Capabilities::SHARED_HANDLES);
    let handles: &dyn SharedHandles = match device.shared_handles() {
        Some(handles) if has => handles,
        None if !has => return Err(Outcome::NotThere("no shared handles")),
        _ => return Err(Outcome::Broken(format!("the capability says {has}, and the method the contrary"))),
    };
    let (memory, page) = virtual_memory(device)?;
    require!(!handles.shareable_kinds().is_empty(), "there are shared handles, but none of any kind");
    let private = memory.create_physical(&request(page))?;
    refused("exporting what is not shareable", handles.export(&private))?;
    refused("exporting another backend's memory", handles.export(&Physical::new(page, ())))?;
    let stream = device.create_stream()?;
    for &shareable in handles.shareable_kinds() {
        refused("sharing half a granule", handles.create_shareable(&request(page / 2), shareable))?;
        let physical = handles.create_shareable(&request(page), shareable)?;
        let imported = handles.import(handles.export(&physical)?, page)?;
        require!(imported.len() == page, "{page} bytes were imported as {}", imported.len());
        let reservation = memory.reserve(2 * page)?;
        map::<B>(memory, &reservation, 0, &physical)?;
        map::<B>(memory, &reservation, page, &imported)?;
        let data = pattern(9, page);
        device.upload(&stream, &data, RegionMut::new(&reservation, 0, page, &stream)?)?;
        require!(read(device, &stream, &reservation, page, page)? == data, "a handle is to other memory");
        memory.unmap(&reservation, 0, page)?;
        drop(physical);
        require!(read(device, &stream, &reservation, page, page)? == data, "data went with the exporter");
    }
    Ok(())
}
