//! Small blocks: slots of mapped slabs, each slab with slots of one size.
//!
//! A page that nothing touches costs nothing, and a slab that cannot be mapped is an error and not the end of
//! the process; a heap promises neither of the two. Slots of a page or more go back to the system when their
//! block is dropped.

use super::ranges::{Range, Ranges, discard};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock};

/// From this size on blocks have mappings of their own, bytes.
pub(super) const MAP_FROM: u64 = 64 * 1024;

/// The alignment of every block, bytes: a cache line, and more than any vector load needs.
pub(crate) const ALIGNMENT: u64 = 64;

/// Sizes of slots: powers of two.
const CLASSES: usize = (MAP_FROM / ALIGNMENT).ilog2() as usize + 1;

/// A device's.
#[derive(Debug, Default)]
pub(crate) struct Slabs {
    classes: [Mutex<Class>; CLASSES],
    ranges: Arc<Ranges>,
}

/// All slabs of one size of slots, by address.
#[derive(Debug, Default)]
struct Class {
    slabs: BTreeMap<usize, Slab>,
    with_room: BTreeSet<usize>,
}

#[derive(Debug)]
struct Slab {
    base: NonNull<u8>,
    slots: u32,
    /// Slots that were taken at any time: the first ones.
    begun: u32,
    /// The free slots, with capacity for all.
    free: Vec<u32>,
    _range: Range,
}

// SAFETY: `base` points into `_range`, which the slab owns and whose bytes it never reads or writes itself,
// so sending a slab sends the only way to the bytes of its free slots.
unsafe impl Send for Slab {}

/// The bytes of one block, which go back when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    base: NonNull<u8>,
    slab: usize,
    number: u32,
    class: usize,
    of: Arc<Slabs>,
}

impl Slabs {
    /// `are_committed`: whether the bytes count in the process's account.
    pub(crate) fn new(are_committed: bool) -> Self {
        Self { classes: Default::default(), ranges: Arc::new(Ranges::new(are_committed)) }
    }

    pub(crate) fn ranges(&self) -> &Arc<Ranges> {
        &self.ranges
    }

    /// Zeroed bytes, fewer than [`MAP_FROM`]. `None` when the system has none.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Option<Slot> {
        let class = class_of(bytes);
        let taken = self.classes.get(class)?.lock().take(class);
        let (slab, number, base, is_dirty) = match taken {
            Some(taken) => taken,
            None => {
                let slab = Slab::new(class, &self.ranges)?;
                let mut class_of_it = self.classes.get(class)?.lock();
                class_of_it.add(slab);
                class_of_it.take(class)?
            }
        };
        let mut slot = Slot { base, slab, number, class, of: Arc::clone(self) };
        if is_dirty {
            slot.bytes().fill(0);
        }
        Some(slot)
    }
}

impl Class {
    /// The slab, the slot's number in it, where it begins, and whether it may have contents.
    fn take(&mut self, class: usize) -> Option<(usize, u32, NonNull<u8>, bool)> {
        let address = *self.with_room.first()?;
        let slab = self.slabs.get_mut(&address)?;
        let (number, was_taken) = match slab.free.pop() {
            Some(number) => (number, true),
            None => {
                slab.begun += 1;
                (slab.begun - 1, false)
            }
        };
        if slab.is_full() {
            self.with_room.remove(&address);
        }
        let offset = u64::from(number) * slot_bytes(class);
        let base = NonNull::new(slab.base.as_ptr().wrapping_add(offset as usize))?;
        Some((address, number, base, was_taken && !is_released(class)))
    }

    fn add(&mut self, slab: Slab) {
        let address = slab.base.as_ptr() as usize;
        self.with_room.insert(address);
        self.slabs.insert(address, slab);
    }

    /// Returns the slab if it is unused and not kept; one slab with room is kept.
    fn put(&mut self, address: usize, number: u32) -> Option<Slab> {
        let slab = self.slabs.get_mut(&address)?;
        slab.free.push(number);
        self.with_room.insert(address);
        let is_unused = slab.free.len() as u32 == slab.begun;
        if !is_unused || self.with_room.len() == 1 {
            return None;
        }
        self.with_room.remove(&address);
        self.slabs.remove(&address)
    }
}

impl Slab {
    fn new(class: usize, ranges: &Arc<Ranges>) -> Option<Self> {
        let bytes = (16 * slot_bytes(class)).clamp(MAP_FROM, 1 << 20);
        let slots = u32::try_from(bytes / slot_bytes(class)).ok()?;
        let mut free = Vec::new();
        free.try_reserve_exact(slots as usize).ok()?;
        let mut range = ranges.take(usize::try_from(bytes).ok()?)?;
        Some(Self { base: range.base()?, slots, begun: 0, free, _range: range })
    }

    fn is_full(&self) -> bool {
        self.free.is_empty() && self.begun == self.slots
    }
}

impl Slot {
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the slot is this one's alone, and inside its slab, which stays mapped and writable while a
        // slot of it is taken. No block has it yet or any more, so nothing has another reference to its bytes.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), slot_bytes(self.class) as usize) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Whole pages: the size is a power of two, and the slab begins with a page.
        if is_released(self.class) && !discard(self.bytes()) {
            self.bytes().fill(0);
        }
        let unused = self.of.classes[self.class].lock().put(self.slab, self.number);
        // Its mapping goes outside the lock.
        drop(unused);
    }
}

fn class_of(bytes: u64) -> usize {
    bytes.max(ALIGNMENT).next_power_of_two().ilog2() as usize - ALIGNMENT.ilog2() as usize
}

fn slot_bytes(class: usize) -> u64 {
    ALIGNMENT << class
}

/// Whether slots of this size are whole pages, which go back to the system when they are dropped.
fn is_released(class: usize) -> bool {
    #[cfg(target_os = "linux")]
    static PAGE: LazyLock<u64> = LazyLock::new(|| rustix::param::page_size() as u64);
    #[cfg(not(target_os = "linux"))]
    static PAGE: LazyLock<u64> = LazyLock::new(|| 4096);
    slot_bytes(class) >= *PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slabs(slabs: &Slabs) -> usize {
        slabs.classes.iter().map(|class| class.lock().slabs.len()).sum()
    }

    fn bytes(slot: &mut Slot, len: u64) -> &mut [u8] {
        // SAFETY: the slot has so many bytes, initialised, and the reference takes the slot's place while it
        // lives.
        unsafe { std::slice::from_raw_parts_mut(slot.base().as_ptr(), len as usize) }
    }

    proptest! {
        /// Each has its own bytes, aligned, zeroed and never another's.
        #[test]
        fn slots_are_zeroed_and_have_one_owner(
            choices in prop::collection::vec((1..MAP_FROM, any::<u8>(), any::<u16>()), 1..400),
        ) {
            let all = Arc::new(Slabs::default());
            let mut live: Vec<(Slot, u64, u8)> = Vec::new();
            for (len, value, choice) in choices {
                if choice % 3 == 0 && !live.is_empty() {
                    let (mut slot, len, value) = live.swap_remove(usize::from(choice) % live.len());
                    prop_assert!(bytes(&mut slot, len).iter().all(|&byte| byte == value));
                    continue;
                }
                let mut slot = all.take(len).expect("memory");
                prop_assert!((slot.base().as_ptr() as u64).is_multiple_of(ALIGNMENT));
                prop_assert!(bytes(&mut slot, len).iter().all(|&byte| byte == 0));
                bytes(&mut slot, len).fill(value);
                live.push((slot, len, value));
            }
            for (mut slot, len, value) in live {
                prop_assert!(bytes(&mut slot, len).iter().all(|&byte| byte == value));
            }
            prop_assert!(slabs(&all) <= CLASSES, "one of each size is kept");
        }
    }

    #[test]
    fn each_size_has_the_smallest_slot_that_holds_it() {
        for bytes in [1, 63, 64, 65, 4096, 4097, MAP_FROM - 1] {
            let slot = slot_bytes(class_of(bytes));
            assert!(slot >= bytes && (slot / 2 < bytes || slot == ALIGNMENT), "{bytes}");
        }
        assert_eq!(class_of(MAP_FROM - 1), CLASSES - 1);
    }

    #[test]
    fn unused_slabs_are_released() {
        let all = Arc::new(Slabs::default());
        let held: Vec<_> = (0..1000).map(|_| all.take(MAP_FROM - 1).expect("memory")).collect();
        assert_eq!(slabs(&all), 1000_usize.div_ceil(16));
        drop(held);
        assert_eq!(slabs(&all), 1);
    }
}
