//! Address space, and what is mapped into it.
//!
//! The table of mappings is the truth: bytes that it does not have as accessible are never touched. It
//! changes only by a [`Turn`], which has the addresses for itself.

use super::claims::{Claims, Release, failure};
use super::map_table::TABLE;
use super::place::Place;
use crate::error::no_memory_or;
use crate::physical::Backing;
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool_backend::spi::with_headroom;
use vrampool_backend::{BackendError, Physical, Placement, Scarce, fork};

/// Reserved addresses. Dropping it unmaps and releases them.
#[derive(Debug)]
pub(crate) struct Reservation {
    base: NonNull<u8>,
    len: u64,
    /// By the offset where they start.
    mappings: Mutex<BTreeMap<u64, Mapping>>,
    /// Entries that it takes of the process's table of mappings, at most: one for each mapping and for each
    /// gap between mappings.
    entries: AtomicU64,
}

// SAFETY: `base` points to address space that the reservation owns, which belongs to no thread.
unsafe impl Send for Reservation {}
// SAFETY: a shared reservation gives out its address and length; its bytes are reached only in
// `Claims::with`, and what is mapped there changes only in a `Turn`, which keep each other out.
unsafe impl Sync for Reservation {}

#[derive(Debug)]
struct Mapping {
    len: u64,
    accessible: bool,
    backing: Arc<Backing>,
    /// Counts as a handle to the memory until the reservation is dropped; work that is queued by then needs
    /// none.
    handle: Option<Physical>,
}

impl Reservation {
    pub(crate) fn new(bytes: u64) -> Result<Self, BackendError> {
        let len = usize::try_from(bytes).ok().filter(|&len| isize::try_from(len).is_ok());
        let len = len.ok_or_else(|| BackendError::invalid("bytes", "no address space is as large"))?;
        let (anywhere, flags) = (std::ptr::null_mut(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        let reserve = || {
            // SAFETY: without an address and without `FIXED` the system chooses addresses that nothing has.
            unsafe { mmap_anonymous(anywhere, len, ProtFlags::empty(), flags) }
        };
        // Nothing of it may be written yet.
        let base =
            with_headroom(len, 0, reserve).ok_or_else(|| BackendError::lacks(bytes, Scarce::Addresses))?;
        let base = base.map_err(|error| no_memory_or("mmap", error, bytes, Scarce::Addresses))?;
        keep_from_children(base, len);
        let base = NonNull::new(base.cast()).ok_or_else(|| failure("addresses from 0 on".into()))?;
        let reservation = Self { base, len: bytes, mappings: Mutex::default(), entries: AtomicU64::new(0) };
        reservation.take_entries(1, bytes)?;
        Ok(reservation)
    }

    fn take_entries(&self, entries: u64, bytes: u64) -> Result<(), BackendError> {
        TABLE.take(entries, bytes)?;
        // Relaxed, here and below: only the number matters.
        self.entries.fetch_add(entries, Relaxed);
        Ok(())
    }

    fn give_entries(&self, entries: u64) {
        self.entries.fetch_sub(entries, Relaxed);
        TABLE.give(entries);
    }

    /// How many gaps a range of it has at its sides.
    fn gaps_beside(&self, mappings: &BTreeMap<u64, Mapping>, range: &Range<u64>) -> u64 {
        let before = mappings.range(..range.start).next_back();
        let is_after_one = before.is_some_and(|(&start, mapping)| start + mapping.len == range.start);
        let is_gap_before = range.start > 0 && !is_after_one;
        let is_gap_behind = range.end < self.len && !mappings.contains_key(&range.end);
        u64::from(is_gap_before) + u64::from(is_gap_behind)
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Lists the physical memory behind a range, in the order of addresses; neighbours in it as one.
    pub(super) fn physical(
        &self,
        range: &Range<u64>,
        mut found: impl FnMut(Place),
    ) -> Result<(), BackendError> {
        if range.is_empty() {
            return Ok(());
        }
        let mappings = self.mappings.lock();
        let first = mappings.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        let mut reached = range.start;
        let mut last: Option<Place> = None;
        for (&start, mapping) in mappings.range(first..range.end) {
            let end = start + mapping.len;
            if end <= reached {
                continue;
            }
            if start > reached || !mapping.accessible {
                break;
            }
            let until = end.min(range.end);
            let place = mapping.backing.place(reached - start..until - start);
            reached = until;
            match &mut last {
                Some(last) if last.space == place.space && last.end == place.start => last.end = place.end,
                last => last.replace(place).into_iter().for_each(&mut found),
            }
        }
        if reached < range.end {
            return Err(failure(format!(
                "bytes {} to {} of a reservation are used, and those from {reached} on are not mapped or not accessible",
                range.start, range.end
            )));
        }
        last.into_iter().for_each(found);
        Ok(())
    }

    /// Whether the host may use what is mapped at a range by itself.
    pub(crate) fn is_host_visible(&self, range: &Range<u64>) -> bool {
        let mappings = self.mappings.lock();
        let first = mappings.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        mappings
            .range(first..range.end.max(first))
            .filter(|&(&start, mapping)| start + mapping.len > range.start)
            .all(|(_, mapping)| mapping.backing.kind.placement != Placement::Device)
    }

    /// Counts as a handle to no memory any more.
    pub(crate) fn let_go(&self) {
        let handles: Vec<_> =
            self.mappings.lock().values_mut().filter_map(|mapping| mapping.handle.take()).collect();
        // A handle's end calls the device, which is not done under the lock.
        drop(handles);
    }

    /// The turn to change what is mapped at a range, behind all work that uses it.
    pub(crate) fn turn(&self, claims: &Claims, offset: u64, bytes: u64) -> Result<Turn<'_>, BackendError> {
        let end = offset.checked_add(bytes).filter(|&end| bytes > 0 && end <= self.len);
        let end = end.ok_or_else(|| {
            let reason = format!("{bytes} bytes from {offset} on leave a reservation of {} bytes", self.len);
            BackendError::invalid("range", reason)
        })?;
        let base = self.base.as_ptr() as u64;
        let release = claims.claim_addresses(base + offset..base + end)?;
        Ok(Turn { reservation: self, range: offset..end, _release: release })
    }

    fn pointer(&self, range: &Range<u64>) -> (*mut c_void, usize) {
        let start = self.base.as_ptr().wrapping_add(range.start as usize);
        (start.cast(), (range.end - range.start) as usize)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if fork::is_forked() {
            // The addresses were the parent's alone, and may be something else's here.
            return;
        }
        let (start, len) = self.pointer(&(0..self.len));
        // SAFETY: the addresses are the reservation's own, with all that is mapped there, and nothing borrows
        // it any more. It fails only where the table of mappings is full; then the addresses stay taken,
        // which harms nothing.
        let _ = unsafe { munmap(start, len) };
        TABLE.give(self.entries.load(Relaxed));
    }
}

/// A process that is forked does not get these addresses: it would share the memory behind them. Mappings
/// beside each other are one to the system only if this is so of both.
fn keep_from_children(start: *mut c_void, len: usize) {
    // SAFETY: the range is the reservation's own. No byte of it changes: this is about processes that are
    // forked later. It fails only where the system has no memory for its records; the mapping is then as it
    // was, and a child would share it.
    let _ = unsafe { madvise(start, len, Advice::LinuxDontFork) };
}

/// The right to change what is mapped at a range of a reservation: no work uses it, and nothing else changes
/// it.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    reservation: &'a Reservation,
    range: Range<u64>,
    _release: Release,
}

impl Turn<'_> {
    /// Maps memory of the range's length there. No work touches it before it is [allowed](Self::allow): the
    /// table of mappings says so.
    pub(crate) fn map(self, handle: &Physical, backing: &Arc<Backing>) -> Result<(), BackendError> {
        let mut mappings = self.reservation.mappings.lock();
        let before = mappings.range(..self.range.end).next_back();
        if before.is_some_and(|(&start, mapping)| start + mapping.len > self.range.start) {
            return Err(BackendError::invalid("range", "a part of it is mapped already"));
        }
        let (start, len) = self.reservation.pointer(&self.range);
        // It is one more, and what is left of the gap that it is in is none, one, or two.
        let entries = self.reservation.gaps_beside(&mappings, &self.range);
        self.reservation.take_entries(entries, backing.len)?;
        let (file, offset) = (backing.file.descriptor(), backing.offset);
        // All access at once: changing it later would take the system a step for each mapping.
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range is inside address space that the reservation owns, and nothing is mapped there
        // (checked above), so no borrowed byte is replaced.
        let mapped = unsafe { mmap(start, len, access, MapFlags::SHARED | MapFlags::FIXED, file, offset) };
        mapped.map_err(|error| {
            self.reservation.give_entries(entries);
            no_memory_or("mmap", error, backing.len, Scarce::Mappings)
        })?;
        keep_from_children(start, len);
        let mapping = Mapping {
            len: backing.len,
            accessible: false,
            backing: Arc::clone(backing),
            handle: Some(handle.clone()),
        };
        mappings.insert(self.range.start, mapping);
        Ok(())
    }

    /// Makes what is mapped there accessible.
    pub(crate) fn allow(self) -> Result<(), BackendError> {
        let mut mappings = self.reservation.mappings.lock();
        self.check_whole(&mappings)?;
        mappings.range_mut(self.range.clone()).for_each(|(_, mapping)| mapping.accessible = true);
        Ok(())
    }

    /// Takes out what is mapped there; the addresses stay reserved.
    pub(crate) fn unmap(self) -> Result<(), BackendError> {
        let mut mappings = self.reservation.mappings.lock();
        self.check_whole(&mappings)?;
        let (start, len) = self.reservation.pointer(&self.range);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range is the reservation's own, and nothing borrows bytes of it: work that does has
        // claimed its addresses, which this turn has for itself. The system refuses, where its table of
        // mappings is full, before it takes anything out.
        let unmapped = unsafe { mmap_anonymous(start, len, ProtFlags::empty(), flags) };
        unmapped.map_err(|error| {
            no_memory_or("mmap", error, self.range.end - self.range.start, Scarce::Mappings)
        })?;
        keep_from_children(start, len);
        let starts: Vec<_> = mappings.range(self.range.clone()).map(|(&start, _)| start).collect();
        let taken: Vec<_> = starts.iter().filter_map(|start| mappings.remove(start)).collect();
        // They and the gaps beside them are one gap.
        let gaps = self.reservation.gaps_beside(&mappings, &self.range);
        self.reservation.give_entries((taken.len() as u64 + gaps).saturating_sub(1));
        drop(mappings);
        // The last handle is dropped outside the lock.
        drop(taken);
        Ok(())
    }

    /// Refuses a range that is not made of whole mappings.
    fn check_whole(&self, mappings: &BTreeMap<u64, Mapping>) -> Result<(), BackendError> {
        let mut reached = self.range.start;
        for (&start, mapping) in mappings.range(self.range.clone()) {
            if start != reached {
                break;
            }
            reached += mapping.len;
        }
        if reached == self.range.end {
            return Ok(());
        }
        let reason = "it cuts a mapping, or a part of it is not mapped";
        Err(BackendError::invalid("range", reason))
    }
}
