//! Memory of this process that its control group has to provide once it is written.
//!
//! The system charges a group for pages when they are written, and ends a process that writes more than its group has
//! left. So a device without a limit asks what is left before it allocates, and counts what it allocated
//! before and nothing has written.

use crate::file::File;
use parking_lot::Mutex;
use rustix::fs::fstat;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use vrampool_backend::fork;
use vrampool_backend::spi::group_memory_left;

/// Bytes reserved for the rest of the process.
const HEADROOM_BYTES: u64 = 4 << 20;

/// Bytes per byte of the system's page tables and records of a file's pages.
const BYTES_PER_OVERHEAD: u64 = 128;

/// All of the process's.
static COMMITTED: Mutex<Committed> = Mutex::new(Committed::new());

#[derive(Debug)]
struct Committed {
    bytes: u64,
    /// At least so many of them are charged already: what the last look found, less what was freed since.
    charged: u64,
    next: u64,
    places: BTreeMap<u64, Place>,
}

/// Where pages are that belong to a commitment.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Unknown so far: none of its pages is charged.
    Unknown,
    /// Pages of this process alone: their first address, and bytes.
    Addresses(u64, u64),
    File(Arc<File>),
}

/// The control group leaves too little.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exhausted {
    pub(crate) available_bytes: u64,
}

/// Bytes that are committed until it is dropped.
#[derive(Debug)]
pub(crate) struct Commitment {
    number: u64,
    bytes: u64,
}

/// Commits bytes: `None` without a limited group.
///
/// # Errors
/// [`Exhausted`] where the control group does not leave them.
pub(crate) fn commit(bytes: u64) -> Result<Option<Commitment>, Exhausted> {
    if group_memory_left().is_none() {
        return Ok(None);
    }
    let mut committed = COMMITTED.lock();
    if available(committed.untouched()) < bytes {
        let available_bytes = committed.look();
        if available_bytes < bytes {
            return Err(Exhausted { available_bytes });
        }
    }
    committed.bytes = committed.bytes.saturating_add(bytes);
    committed.next += 1;
    let number = committed.next;
    committed.places.insert(number, Place::Unknown);
    Ok(Some(Commitment { number, bytes }))
}

/// Bytes that may be committed; `None` without a limited group.
pub(crate) fn available_bytes() -> Option<u64> {
    group_memory_left().map(|_| COMMITTED.lock().look())
}

/// Returns the bytes that the group leaves once `untouched` bytes are written.
fn available(untouched: u64) -> u64 {
    let Some(left) = group_memory_left() else { return u64::MAX };
    let left = left.saturating_sub(HEADROOM_BYTES);
    (left - left / BYTES_PER_OVERHEAD).saturating_sub(untouched)
}

impl Commitment {
    /// Its pages are found there from now on.
    pub(crate) fn set_place(&self, place: Place) {
        COMMITTED.lock().places.insert(self.number, place);
    }
}

impl Drop for Commitment {
    fn drop(&mut self) {
        if fork::is_forked() {
            // The account is the parent's, and may be locked for ever.
            return;
        }
        let mut committed = COMMITTED.lock();
        committed.bytes = committed.bytes.saturating_sub(self.bytes);
        committed.charged = committed.charged.saturating_sub(self.bytes);
        let place = committed.places.remove(&self.number);
        drop(committed);
        // A file is closed outside the lock.
        drop(place);
    }
}

impl Committed {
    const fn new() -> Self {
        Self { bytes: 0, charged: 0, next: 0, places: BTreeMap::new() }
    }

    fn untouched(&self) -> u64 {
        self.bytes.saturating_sub(self.charged)
    }

    /// Looks which pages are charged, and returns what is available. A page that is written meanwhile counts twice.
    fn look(&mut self) -> u64 {
        self.charged = self.charged_bytes().min(self.bytes);
        available(self.untouched())
    }

    fn charged_bytes(&self) -> u64 {
        let pagemap = std::fs::File::open("/proc/self/pagemap");
        let mut files = HashSet::new();
        let of_place = |place: &Place| match place {
            Place::Unknown => 0,
            Place::Addresses(start, bytes) => {
                pagemap.as_ref().map_or(0, |pagemap| charged_at(pagemap, *start, *bytes))
            }
            Place::File(file) if files.insert(file.descriptor().as_raw_fd()) => charged_of(file),
            Place::File(_) => 0,
        };
        self.places.values().map(of_place).sum()
    }
}

/// Bytes in a range of whole pages that are in memory and this process's alone. The page of zeros that a read maps is
/// shared by all, and is not charged.
fn charged_at(pagemap: &std::fs::File, start: u64, bytes: u64) -> u64 {
    /// Flags of an entry of `/proc/self/pagemap`.
    const IN_MEMORY: u64 = 1 << 63;
    const OWN: u64 = 1 << 56;
    let page = rustix::param::page_size() as u64;
    let (mut entry, end) = (start / page * 8, start.saturating_add(bytes) / page * 8);
    let (mut pages, mut entries) = (0, [0; 16 << 10]);
    while entry < end {
        let most = entries.len().min((end - entry) as usize);
        let read = pagemap.read_at(&mut entries[..most], entry).unwrap_or(0) / 8 * 8;
        if read == 0 {
            break;
        }
        let flags = entries[..read].chunks_exact(8).filter_map(|entry| entry.try_into().ok());
        pages += flags
            .map(u64::from_ne_bytes)
            .filter(|flags| flags & (IN_MEMORY | OWN) == IN_MEMORY | OWN)
            .count();
        entry += read as u64;
    }
    pages as u64 * page
}

fn charged_of(file: &File) -> u64 {
    fstat(file.descriptor()).map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512))
}
