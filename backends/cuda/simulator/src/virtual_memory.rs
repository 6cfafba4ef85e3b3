//! Virtual memory: address space and physical memory apart. Reserved addresses, and memory files mapped into
//! them.

use crate::code::{Answer, Code};
use crate::detector::Span;
use crate::executor::TOUCHING;
use crate::memory::{Area, map_anonymous, map_at, unmap};
use crate::world::World;
use std::collections::{BTreeMap, HashSet};
use std::ffi::c_int;

/// Physical memory: a file without a name.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    pub(crate) file: c_int,
    /// As what it can be exported: 0 or 1, a file descriptor.
    pub(crate) shareable: c_int,
    pub(crate) direct_rdma: bool,
    /// Handles to it, and the references of each.
    pub(crate) handles: BTreeMap<usize, usize>,
    /// Handles that were imported, which do not report what it can be exported as.
    pub(crate) imported: HashSet<usize>,
    /// Descriptors that it was exported as. It lives while one of them is open in this process.
    pub(crate) exported: Vec<c_int>,
    /// Places where it is mapped.
    pub(crate) mapped: usize,
    /// Whether it came from another process, which accounts for it.
    pub(crate) is_imported: bool,
}

#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    pub(crate) physical: u64,
    /// Devices that may read and write it.
    pub(crate) access: HashSet<usize>,
    /// Devices that may read it.
    pub(crate) read_only: HashSet<usize>,
}

#[derive(Debug)]
pub(crate) struct Reservation {
    /// Its number for the detector, by which work that uses its addresses is found.
    pub(crate) backing: u64,
    pub(crate) bytes: u64,
    /// By offset.
    pub(crate) mappings: BTreeMap<u64, Mapping>,
}

impl Physical {
    fn is_exported(&self) -> bool {
        let own = identify(self.file);
        self.exported.iter().any(|&file| identify(file) == own)
    }
}

impl Reservation {
    /// The physical memory behind a range, and the range itself.
    pub(crate) fn spans(&self, start: u64, end: u64, write: bool) -> Vec<Span> {
        let mut spans = vec![Span { backing: self.backing, start, end: end.min(self.bytes), write: false }];
        let first = self.mappings.range(..=start).next_back().map_or(start, |(&first, _)| first);
        for (&offset, mapping) in self.mappings.range(first..end) {
            let (from, to) = (start.max(offset), end.min(offset + mapping.bytes));
            if from < to {
                spans.push(Span { backing: mapping.physical, start: from - offset, end: to - offset, write });
            }
        }
        spans
    }

    pub(crate) fn is_accessible(&self, start: u64, end: u64, device: usize, write: bool) -> bool {
        let allows = |mapping: &Mapping| {
            mapping.access.contains(&device) || (!write && mapping.read_only.contains(&device))
        };
        let mut from = start;
        while from < end {
            match self.mapping_at(from) {
                Some((offset, mapping)) if allows(mapping) => from = offset + mapping.bytes,
                _ => return false,
            }
        }
        true
    }

    pub(crate) fn mapping_at(&self, offset: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=offset).next_back()?;
        (offset - start < mapping.bytes).then_some((start, mapping))
    }

    /// The mappings in a range, unless it cuts one.
    fn uncut(&self, start: u64, end: u64) -> Option<Vec<u64>> {
        let cuts = |at: u64| self.mapping_at(at).is_some_and(|(offset, _)| offset != at);
        (!cuts(start) && !cuts(end))
            .then(|| self.mappings.range(start..end).map(|(&offset, _)| offset).collect())
    }

    /// The mappings that make up a range, if whole ones do.
    fn whole(&self, start: u64, end: u64) -> Option<Vec<u64>> {
        let offsets: Vec<u64> = self.mappings.range(start..end).map(|(&offset, _)| offset).collect();
        let mut at = start;
        for offset in &offsets {
            if *offset != at {
                return None;
            }
            at += self.mappings.get(offset)?.bytes;
        }
        (at == end && !offsets.is_empty()).then_some(offsets)
    }
}

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

    /// Gives up one handle, or one mapping, of physical memory; the last one gives the memory back.
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
        // SAFETY: the file is this memory's own, and nobody has it any more.
        let _ = unsafe { libc::close(physical.file) };
    }

    /// Gives back the physical memory that only descriptors kept, which have been closed.
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
        let gone: Vec<Mapping> =
            offsets.iter().filter_map(|offset| reservation.mappings.remove(offset)).collect();
        place(address, bytes, libc::PROT_NONE, None);
        for mapping in gone {
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
    // What is before and behind goes back, so that a program's own limits count what it asked for.
    if address > start {
        unmap(start, address - start);
    }
    if start + more > address + bytes {
        unmap(address + bytes, start + more - (address + bytes));
    }
    Ok(address)
}

/// Maps a file, or nothing, over a range of a reservation.
fn place(address: u64, bytes: u64, protection: c_int, file: Option<c_int>) -> bool {
    let _alone = TOUCHING.write();
    let flags = match file {
        Some(_) => libc::MAP_SHARED | libc::MAP_FIXED,
        None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
    };
    let start = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the range lies in a reservation, which the driver mapped and nobody else has, so that nothing
    // else is replaced; no worker touches memory now.
    let placed = unsafe { libc::mmap(start, bytes as usize, protection, flags, file.unwrap_or(-1), 0) };
    placed != libc::MAP_FAILED
}

fn protect(address: u64, bytes: u64, protection: c_int) {
    let _alone = TOUCHING.write();
    let start = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the range is a mapping of a reservation; no worker touches memory now.
    let _ = unsafe { libc::mprotect(start, bytes as usize, protection) };
}

/// A memory file of so many bytes.
pub(crate) fn memory_file(bytes: u64) -> Answer<c_int> {
    // SAFETY: the name is a text that ends with a zero; the call makes a new descriptor.
    let file = unsafe { libc::memfd_create(c"simulated memory".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(Code::OUT_OF_MEMORY);
    }
    // SAFETY: the descriptor was made above and is this function's.
    if unsafe { libc::ftruncate(file, bytes as i64) } != 0 {
        // SAFETY: as above.
        let _ = unsafe { libc::close(file) };
        return Err(Code::OUT_OF_MEMORY);
    }
    Ok(file)
}

/// Another descriptor of the same file.
pub(crate) fn duplicate(file: c_int) -> Answer<c_int> {
    // SAFETY: a descriptor is a number; one that is not open is an error.
    let copy = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 { Err(Code::INVALID_VALUE) } else { Ok(copy) }
}

/// The size and the number of a file, if the descriptor is of one.
pub(crate) fn identify(file: c_int) -> Option<(u64, u64)> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call writes one `stat`, for which there is room.
    if unsafe { libc::fstat(file, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the whole of it was written.
    let status = unsafe { status.assume_init() };
    Some((u64::try_from(status.st_size).ok()?, status.st_ino))
}
