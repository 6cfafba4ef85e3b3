//! Virtual memory: addresses that are reserved, and physical memory mapped into them.

use super::World;
use crate::code::{Answer, Code};
use crate::objects::memory::Area;
use crate::objects::virtual_memory::{Mapping, Physical, Reservation};
use crate::pages::{map_anonymous, map_at, place, protect, unmap};
use std::collections::BTreeMap;
use std::ffi::c_int;

impl World {
    fn is_granular(&self, bytes: u64) -> bool {
        bytes > 0 && bytes.is_multiple_of(self.settings.granularity)
    }

    /// Reserves addresses: the wished ones, if they are free, or else others.
    pub(crate) fn reserve(&mut self, bytes: u64, alignment: u64, wished: u64) -> Answer<u64> {
        if !self.is_granular(bytes) || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(Code::INVALID_VALUE);
        }
        let align = alignment.max(self.settings.granularity);
        let more = bytes.checked_add(align).filter(|&more| more < 1 << 47).ok_or(Code::OUT_OF_MEMORY)?;
        let is_wished = wished != 0 && wished.is_multiple_of(align) && map_at(wished, bytes);
        let address = if is_wished { wished } else { reserve_anywhere(bytes, more, align)? };
        let backing = self.next_number();
        let reservation = Reservation { backing, bytes, mappings: BTreeMap::new() };
        self.memory.areas.insert(address, Area::Reservation(reservation));
        Ok(address)
    }

    pub(crate) fn free_addresses(&mut self, address: u64, bytes: u64) -> Answer {
        match self.memory.areas.get(&address) {
            Some(Area::Reservation(reservation)) if reservation.bytes == bytes => {
                if !reservation.mappings.is_empty() {
                    return Err(Code::INVALID_VALUE);
                }
                let backing = reservation.backing;
                self.memory.areas.remove(&address);
                self.shadow.forget(backing);
                unmap(address, bytes);
                Ok(())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    pub(crate) fn create_physical(&mut self, physical: Physical) -> Answer<u64> {
        if !physical.is_imported {
            if !self.is_granular(physical.bytes) {
                return Err(Code::INVALID_VALUE);
            }
            self.charge(physical.device, physical.bytes)?;
        }
        let number = self.next_number();
        self.memory.physical.insert(number, physical);
        Ok(number)
    }

    /// Drops one handle, or one mapping, of physical memory; the last one releases the memory.
    pub(crate) fn drop_physical(&mut self, number: u64) {
        let Some(physical) = self.memory.physical.get(&number) else { return };
        if !physical.handles.is_empty() || physical.mapped > 0 || physical.is_exported() {
            return;
        }
        let Some(physical) = self.memory.physical.remove(&number) else { return };
        self.shadow.forget(number);
        if !physical.is_imported {
            self.discharge(physical.device, physical.bytes);
        }
        // SAFETY: the file is this memory's own, and nothing has it any more.
        let _ = unsafe { libc::close(physical.file) };
    }

    /// Releases the physical memory that only descriptors kept, which have been closed.
    pub(crate) fn collect_exports(&mut self) {
        let physical = self.memory.physical.iter();
        let exported = physical.filter(|(_, physical)| !physical.exported.is_empty());
        let numbers: Vec<u64> = exported.map(|(&number, _)| number).collect();
        numbers.into_iter().for_each(|number| self.drop_physical(number));
    }

    /// The reservation that has a range whole, and the range's offset in it.
    fn reservation_of(&mut self, address: u64, bytes: u64) -> Answer<(u64, &mut Reservation)> {
        let (&start, area) =
            self.memory.areas.range_mut(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
        match area {
            Area::Reservation(reservation) => match (address - start).checked_add(bytes) {
                Some(end) if end <= reservation.bytes => Ok((address - start, reservation)),
                _ => Err(Code::INVALID_VALUE),
            },
            Area::Allocation(_) => Err(Code::INVALID_VALUE),
        }
    }

    pub(crate) fn map(&mut self, address: u64, bytes: u64, number: u64) -> Answer {
        let (size, file) = match self.memory.physical.get(&number) {
            Some(physical) => (physical.bytes, physical.file),
            None => return Err(Code::INVALID_VALUE),
        };
        if bytes != size {
            return Err(Code::NOT_SUPPORTED);
        }
        if !self.is_granular(bytes) || !address.is_multiple_of(self.settings.granularity) {
            return Err(Code::INVALID_VALUE);
        }
        let (offset, reservation) = self.reservation_of(address, bytes)?;
        let before = reservation.mappings.range(..offset + bytes).next_back();
        if before.is_some_and(|(&start, mapping)| start + mapping.bytes > offset) {
            return Err(Code::INVALID_VALUE);
        }
        if !place(address, bytes, libc::PROT_NONE, Some(file)) {
            return Err(Code::OUT_OF_MEMORY);
        }
        let (access, read_only) = Default::default();
        reservation.mappings.insert(offset, Mapping { bytes, physical: number, access, read_only });
        if let Some(physical) = self.memory.physical.get_mut(&number) {
            physical.mapped += 1;
        }
        Ok(())
    }

    pub(crate) fn unmap_range(&mut self, address: u64, bytes: u64) -> Answer {
        let (offset, reservation) = self.reservation_of(address, bytes)?;
        let (backing, end) = (reservation.backing, offset + bytes);
        let offsets = reservation.uncut(offset, end).ok_or(Code::INVALID_VALUE)?;
        if offsets.is_empty() {
            return Ok(());
        }
        self.check_unused(backing, offset, end, "unmapped");
        self.shadow.forget_range(backing, offset, end);
        let (_, reservation) = self.reservation_of(address, bytes)?;
        let unmapped: Vec<Mapping> =
            offsets.iter().filter_map(|offset| reservation.mappings.remove(offset)).collect();
        place(address, bytes, libc::PROT_NONE, None);
        for mapping in unmapped {
            if let Some(physical) = self.memory.physical.get_mut(&mapping.physical) {
                physical.mapped -= 1;
            }
            self.drop_physical(mapping.physical);
        }
        Ok(())
    }

    /// Sets what devices may do with whole mappings: 0 nothing, 1 read, 3 read and write.
    pub(crate) fn set_access(&mut self, address: u64, bytes: u64, device: usize, flags: c_int) -> Answer {
        let (offset, reservation) = self.reservation_of(address, bytes)?;
        let offsets = reservation.whole(offset, offset + bytes).ok_or(Code::INVALID_VALUE)?;
        for at in offsets {
            let Some(mapping) = reservation.mappings.get_mut(&at) else { continue };
            mapping.access.remove(&device);
            mapping.read_only.remove(&device);
            match flags {
                3 => {
                    mapping.access.insert(device);
                }
                1 => {
                    mapping.read_only.insert(device);
                }
                _ => {}
            }
            let protection = match (mapping.access.is_empty(), mapping.read_only.is_empty()) {
                (false, _) => libc::PROT_READ | libc::PROT_WRITE,
                (true, false) => libc::PROT_READ,
                (true, true) => libc::PROT_NONE,
            };
            protect(address - offset + at, mapping.bytes, protection);
        }
        Ok(())
    }
}

/// Maps `more` bytes, of which `bytes` stay, aligned.
fn reserve_anywhere(bytes: u64, more: u64, align: u64) -> Answer<u64> {
    let start = map_anonymous(more, false).ok_or(Code::OUT_OF_MEMORY)?;
    let address = start.next_multiple_of(align);
    // Addresses before and behind the range are released, so that a process's limits count the requested bytes.
    if address > start {
        unmap(start, address - start);
    }
    if start + more > address + bytes {
        unmap(address + bytes, start + more - (address + bytes));
    }
    Ok(address)
}
