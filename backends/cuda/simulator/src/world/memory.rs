//! Memory that is allocated, registered and released, and the devices that may access it.

use super::World;
use crate::code::{Answer, Code};
use crate::kernels::Range;
use crate::objects::memory::{Allocation, Area, Source};
use crate::pages::{map_anonymous, unmap};
use parking_lot::MutexGuard;

/// The alignment and granularity of addresses.
const PAGE: u64 = 4096;

impl World {
    /// Takes memory from a device or from the host.
    pub(crate) fn allocate(&mut self, context: u64, bytes: u64, source: Source) -> Answer<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let device = self.device_of(context);
        let rounded = bytes.checked_next_multiple_of(PAGE).ok_or(Code::OUT_OF_MEMORY)?;
        let is_devices = matches!(source, Source::Device | Source::Chunk(_) | Source::Graph);
        if is_devices {
            self.charge(device, rounded)?;
        } else if rounded > 1 << 46 {
            return Err(Code::OUT_OF_MEMORY);
        }
        let Some(address) = map_anonymous(rounded, true) else {
            if is_devices {
                self.discharge(device, rounded);
            }
            return Err(Code::OUT_OF_MEMORY);
        };
        let backing = self.next_number();
        let allocation = Allocation { backing, bytes, source, context, device, flags: 0 };
        self.memory.areas.insert(address, Area::Allocation(allocation));
        Ok(address)
    }

    /// Releases an allocation, which no work uses any more.
    pub(crate) fn release(&mut self, address: u64, verb: &str) {
        let Some(Area::Allocation(allocation)) = self.memory.areas.remove(&address) else { return };
        self.check_unused(allocation.backing, 0, allocation.bytes, verb);
        self.shadow.forget(allocation.backing);
        if allocation.source == Source::Registered {
            return;
        }
        let rounded = allocation.bytes.next_multiple_of(PAGE);
        if matches!(allocation.source, Source::Device | Source::Chunk(_) | Source::Graph) {
            self.discharge(allocation.device, rounded);
        }
        unmap(address, rounded);
    }

    /// Makes memory of the program known to the driver.
    pub(crate) fn register(&mut self, context: u64, address: u64, bytes: u64) -> Answer {
        let end = address.checked_add(bytes).filter(|&end| end > address).ok_or(Code::INVALID_VALUE)?;
        let before = self.memory.areas.range(..end).next_back();
        if before.is_some_and(|(start, area)| start + area.bytes() > address) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let (backing, device) = (self.next_number(), self.device_of(context));
        let source = Source::Registered;
        let allocation = Allocation { backing, bytes, source, context, device, flags: 0 };
        self.memory.areas.insert(address, Area::Allocation(allocation));
        Ok(())
    }

    /// Frees what `cuMemAlloc`, `cuMemAllocManaged` and `cuMemHostAlloc` gave, when the context's work is
    /// done.
    pub(crate) fn free(
        world: &mut MutexGuard<'_, Self>,
        address: u64,
        is: impl Fn(Source) -> bool,
    ) -> Answer {
        let context = match world.memory.areas.get(&address) {
            Some(Area::Allocation(allocation)) if is(allocation.source) => allocation.context,
            _ => return Err(Code::INVALID_VALUE),
        };
        Self::synchronize_context(world, context)?;
        world.release(address, "freed");
        Ok(())
    }

    /// Releases all memory of a context.
    pub(crate) fn release_memory_of(&mut self, context: u64) {
        let of = |area: &Area| matches!(area, Area::Allocation(allocation) if allocation.context == context);
        let starts: Vec<u64> =
            self.memory.areas.iter().filter(|(_, area)| of(area)).map(|(&start, _)| start).collect();
        for start in starts {
            if matches!(
                self.memory.areas.get(&start),
                Some(Area::Allocation(Allocation { source: Source::Chunk(_), .. }))
            ) {
                continue;
            }
            self.release(start, "freed with its context");
        }
    }

    /// Whether work of a context may touch a range.
    pub(crate) fn is_accessible(&self, range: Range, context: u64, is_kernel: bool) -> bool {
        let Some(of) = self.contexts.get(&context) else { return false };
        let Some((start, area)) = self.memory.area(range.address) else {
            return range.host;
        };
        let first = range.address - start;
        match area {
            Area::Allocation(allocation) => {
                let inside = first + range.bytes <= allocation.bytes;
                let reaches = match allocation.source {
                    Source::Managed | Source::Pinned | Source::Registered => true,
                    Source::Chunk(pool) => {
                        let allowed = |pool: &crate::objects::pool::Pool| pool.peers.contains(&of.device);
                        allocation.device == of.device
                            || !is_kernel
                            || self.pools.get(&pool).is_some_and(allowed)
                    }
                    _ => {
                        allocation.device == of.device || !is_kernel || of.peers.contains(&allocation.device)
                    }
                };
                inside && reaches
            }
            Area::Reservation(reservation) => {
                reservation.is_accessible(first, first + range.bytes, of.device, range.write)
            }
        }
    }
}
