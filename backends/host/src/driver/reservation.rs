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
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool_backend::spi::{Mappings, with_headroom};
use vrampool_backend::{BackendError, Physical, Placement, Scarce, arguments, fork};

/// Reserved addresses. Dropping it unmaps and releases them.
#[derive(Debug)]
pub(crate) struct Reservation {
    base: NonNull<u8>,
    len: u64,
    mappings: Mutex<Mappings<Mapped>>,
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
struct Mapped {
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
    fn gaps_beside(&self, mappings: &Mappings<Mapped>, range: &Range<u64>) -> u64 {
        let before = range.start.checked_sub(1);
        let behind = Some(range.end).filter(|&end| end < self.len);
        let is_gap = |byte: u64| mappings.over(&(byte..byte + 1)).next().is_none();
        before.into_iter().chain(behind).filter(|&byte| is_gap(byte)).count() as u64
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
        let mut reached = range.start;
        let mut last: Option<Place> = None;
        for (part, mapped) in mappings.accessible(range) {
            reached += part.end - part.start;
            let place = mapped.backing.place(part);
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
        mappings.over(range).all(|(_, mapped)| mapped.backing.kind.placement != Placement::Device)
    }

    /// Counts as a handle to no memory any more.
    pub(crate) fn let_go(&self) {
        let handles: Vec<_> =
            self.mappings.lock().values_mut().filter_map(|mapped| mapped.handle.take()).collect();
        // A handle's end calls the device, which is not done under the lock.
        drop(handles);
    }

    /// The turn to change what is mapped at a range, behind all work that uses it.
    pub(crate) fn turn(&self, claims: &Claims, offset: u64, bytes: u64) -> Result<Turn<'_>, BackendError> {
        let range = arguments::check_range(offset, bytes, self.len)?;
        let base = self.base.as_ptr() as u64;
        let release = claims.claim_addresses(base + range.start..base + range.end)?;
        Ok(Turn { reservation: self, range, _release: release })
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
        mappings.check_free(&self.range)?;
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
        let mapped = Mapped { backing: Arc::clone(backing), handle: Some(handle.clone()) };
        mappings.insert(&self.range, mapped);
        Ok(())
    }

    /// Makes what is mapped there accessible.
    pub(crate) fn allow(self) -> Result<(), BackendError> {
        let mut mappings = self.reservation.mappings.lock();
        mappings.check_whole(&self.range)?;
        mappings.make_accessible(&self.range);
        Ok(())
    }

    /// Takes out what is mapped there; the addresses stay reserved.
    pub(crate) fn unmap(self) -> Result<(), BackendError> {
        let mut mappings = self.reservation.mappings.lock();
        mappings.check_whole(&self.range)?;
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
        let taken = mappings.remove(&self.range);
        // They and the gaps beside them are one gap.
        let gaps = self.reservation.gaps_beside(&mappings, &self.range);
        self.reservation.give_entries((taken.len() as u64 + gaps).saturating_sub(1));
        drop(mappings);
        // The last handle is dropped outside the lock.
        drop(taken);
        Ok(())
    }
}
