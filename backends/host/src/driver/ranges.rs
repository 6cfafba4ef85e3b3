//! Reuse of the address space of freed blocks for blocks of the same size.
//!
//! Removing a mapping and creating the next one takes the system several microseconds, mostly to update its
//! record of used addresses. Releasing the memory and keeping the addresses leaves that record unchanged.

#[cfg(target_os = "linux")]
use crate::committed::{Commitment, Place, commit};
use memmap2::{MmapMut, MmapOptions};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ptr::NonNull;
use std::sync::Arc;
use vrampool_backend::spi::with_headroom;

/// The most that are kept. No memory is behind them but page tables; each is one of the 65,530 mappings that
/// Linux grants a process.
const MOST: usize = 1024;

/// A device's.
#[derive(Debug)]
pub(crate) struct Ranges {
    kept: Mutex<Kept>,
    /// Whether a process may have so many bytes of addresses and no more. Then none is kept, because others
    /// would lack them.
    are_limited: bool,
    /// Whether the control group of the process bounds them.
    are_committed: bool,
}

impl Default for Ranges {
    fn default() -> Self {
        Self::new(false)
    }
}

/// Mappings without memory.
#[derive(Debug, Default)]
struct Kept {
    /// By number, in the order in which they were kept.
    by_age: BTreeMap<u64, MmapMut>,
    /// The numbers of those of each size, oldest first.
    by_size: BTreeMap<usize, VecDeque<u64>>,
    /// Number of mappings that were ever kept.
    ever: u64,
}

/// A mapping, which goes back to where it is from.
#[derive(Debug)]
pub(super) struct Range {
    /// `None` only while dropping.
    map: Option<MmapMut>,
    of: Arc<Ranges>,
    #[cfg(target_os = "linux")]
    _commitment: Option<Commitment>,
}

impl Ranges {
    pub(super) fn new(are_committed: bool) -> Self {
        Self { kept: Mutex::default(), are_limited: addresses_are_limited(), are_committed }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn are_committed(&self) -> bool {
        self.are_committed
    }

    /// Zeroed bytes. `None` when the system has none of this size.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Option<Range> {
        #[cfg(target_os = "linux")]
        let commitment = if self.are_committed { commit(len as u64).ok()? } else { None };
        let kept = self.kept.lock().take(len);
        let map = kept.or_else(|| map(len)).or_else(|| {
            // Kept ranges may be the missing memory.
            let kept = std::mem::take(&mut *self.kept.lock());
            drop(kept);
            map(len)
        })?;
        #[cfg(target_os = "linux")]
        if let Some(commitment) = &commitment {
            commitment.set_place(Place::Addresses(map.as_ptr() as u64, len as u64));
        }
        Some(Range {
            map: Some(map),
            of: Arc::clone(self),
            #[cfg(target_os = "linux")]
            _commitment: commitment,
        })
    }

    /// Returns memory to the system, and keeps its addresses.
    fn keep(&self, mut map: MmapMut) {
        if self.are_limited || !discard(&mut map) {
            return;
        }
        let mut kept = self.kept.lock();
        let oldest = if kept.by_age.len() >= MOST { kept.take_oldest() } else { None };
        kept.add(map);
        drop(kept);
        drop(oldest);
    }
}

impl Kept {
    fn add(&mut self, map: MmapMut) {
        self.ever += 1;
        self.by_size.entry(map.len()).or_default().push_back(self.ever);
        self.by_age.insert(self.ever, map);
    }

    /// The newest of this size.
    fn take(&mut self, len: usize) -> Option<MmapMut> {
        let newest = self.by_size.get_mut(&len)?.pop_back()?;
        self.forget_if_none(len);
        self.by_age.remove(&newest)
    }

    fn take_oldest(&mut self) -> Option<MmapMut> {
        let (_, oldest) = self.by_age.pop_first()?;
        self.by_size.get_mut(&oldest.len())?.pop_front();
        self.forget_if_none(oldest.len());
        Some(oldest)
    }

    fn forget_if_none(&mut self, len: usize) {
        if self.by_size.get(&len).is_some_and(VecDeque::is_empty) {
            self.by_size.remove(&len);
        }
    }
}

impl Range {
    /// Where it begins.
    pub(super) fn base(&mut self) -> Option<NonNull<u8>> {
        NonNull::new(self.map.as_mut()?.as_mut_ptr())
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(map) = self.map.take() {
            self.of.keep(map);
        }
    }
}

fn map(len: usize) -> Option<MmapMut> {
    with_headroom(len, len, || MmapOptions::new().len(len).no_reserve_swap().map_anon().ok()).flatten()
}

#[cfg(target_os = "linux")]
fn addresses_are_limited() -> bool {
    use rustix::process::{Resource, getrlimit};
    // Mappings that may be written count as data.
    [Resource::As, Resource::Data].into_iter().any(|limit| getrlimit(limit).current.is_some())
}

#[cfg(not(target_os = "linux"))]
fn addresses_are_limited() -> bool {
    true
}

/// Returns the memory behind all bytes of a mapping to the system. They are zeros then. Returns whether it did.
#[cfg(target_os = "linux")]
pub(super) fn discard(bytes: &mut [u8]) -> bool {
    use rustix::mm::{Advice, madvise};
    // SAFETY: the pages of the whole mapping are dropped, and read as zeros from then on. That is a write to all of
    // its bytes, to which the caller has the only reference. The address is the mapping's, and its last page has no
    // other bytes.
    unsafe { madvise(bytes.as_mut_ptr().cast(), bytes.len(), Advice::LinuxDontNeed) }.is_ok()
}

/// Elsewhere what such an advice leaves there is not said.
#[cfg(not(target_os = "linux"))]
pub(super) fn discard(_: &mut [u8]) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(ranges: &Ranges) -> usize {
        let kept = ranges.kept.lock();
        assert_eq!(kept.by_age.len(), kept.by_size.values().map(VecDeque::len).sum::<usize>());
        kept.by_age.len()
    }

    fn bytes(range: &mut Range) -> &mut MmapMut {
        range.map.as_mut().expect("mapped")
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn addresses_come_again_and_contents_do_not() {
        let ranges = Arc::new(Ranges::default());
        let mut first = ranges.take(1 << 20).expect("memory");
        bytes(&mut first).fill(7);
        let address = first.base();
        drop(first);
        assert_eq!(count(&ranges), 1);
        assert_ne!(ranges.take(1 << 21).expect("memory").base(), address);
        let mut again = ranges.take(1 << 20).expect("memory");
        assert_eq!(again.base(), address);
        assert!(bytes(&mut again).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_huge_request_is_refused_and_releases_kept_ranges() {
        let ranges = Arc::new(Ranges::default());
        drop(ranges.take(4096));
        assert!(ranges.take(1 << 62).is_none());
        assert_eq!(count(&ranges), 0);
    }

    #[test]
    fn the_newest_of_a_size_is_taken_and_the_oldest_of_all_is_let_go() {
        let mut kept = Kept::default();
        let maps = [1, 2, 1, 2].map(|pages| map(pages * 4096).expect("memory"));
        let [first, second, third, fourth] = maps.each_ref().map(|map| map.as_ptr());
        maps.into_iter().for_each(|map| kept.add(map));
        let taken = kept.take(4096).expect("one of two");
        assert_eq!(taken.as_ptr(), third);
        kept.add(taken);
        let oldest = [(); 4].map(|()| kept.take_oldest().map(|map| map.as_ptr()));
        assert_eq!(oldest, [first, second, fourth, third].map(Some));
        assert!(kept.take(4096).is_none() && kept.take_oldest().is_none() && kept.by_size.is_empty());
    }

    #[test]
    fn no_range_is_kept_where_addresses_are_limited() {
        let ranges = Arc::new(Ranges { are_limited: true, ..Ranges::default() });
        drop(ranges.take(1 << 20));
        assert_eq!(count(&ranges), 0);
    }

    proptest! {
        #[test]
        fn a_bounded_number_is_kept_and_each_is_zeroed(
            sizes in prop::collection::vec(1..6usize, 1..2000),
            hold in 1..1500usize,
        ) {
            let (ranges, mut held) = (Arc::new(Ranges::default()), Vec::new());
            for size in sizes {
                let mut range = ranges.take(size * 4096).expect("memory");
                let map = bytes(&mut range);
                prop_assert_eq!(map.len(), size * 4096);
                prop_assert!(map.iter().all(|&byte| byte == 0));
                map[size * 4096 - 1] = 1;
                held.push(range);
                if held.len() > hold {
                    held.clear();
                }
                prop_assert!(count(&ranges) <= MOST);
            }
        }
    }
}
