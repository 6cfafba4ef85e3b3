//! A limit on physical memory that several arenas share.

use crate::environment::{as_cap, as_limit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::BackendError;

/// A limit on the physical bytes of several growing arenas together, and the bytes taken from it.
///
/// See [`ArenaBuilder::within`](crate::arena::ArenaBuilder::within). A clone is a handle to the same
/// allowance.
///
/// ```
/// # use vrampool::{Backend, host::HostDevice, arena::{Allowance, DeviceArena}};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # if device.virtual_memory().is_none() { return Ok(()) }
/// let stream = device.create_stream()?;
/// let allowance = Allowance::new(64 << 20);
/// let arena = || DeviceArena::builder(&device).growing().within(&allowance).build();
/// let (one, other) = (arena()?, arena()?);
/// let block = one.allocate(40 << 20, &stream)?;
/// assert!(other.allocate(40 << 20, &stream).unwrap_err().is_out_of_memory());
/// assert_eq!(allowance.taken(), 40 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Allowance {
    account: Arc<Account>,
}

#[derive(Debug)]
struct Account {
    limit: AtomicU64,
    taken: AtomicU64,
}

impl Allowance {
    /// Returns an allowance of `limit` bytes; with `None` it only counts them.
    #[must_use]
    pub fn new(limit: impl Into<Option<u64>>) -> Self {
        let limit = AtomicU64::new(as_cap(limit));
        Self { account: Arc::new(Account { limit, taken: AtomicU64::new(0) }) }
    }

    /// The most bytes that may be taken; `None` if there is no limit.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        as_limit(self.cap())
    }

    /// The limit as a number: the largest one if there is none.
    pub(in crate::arena) fn cap(&self) -> u64 {
        // Relaxed, here and below: only the numbers matter, nothing is published with them.
        self.account.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit; `None` removes it. Below the bytes taken, requests for more fail until enough is
    /// returned.
    pub fn set_limit(&self, bytes: impl Into<Option<u64>>) {
        self.account.limit.store(as_cap(bytes), Ordering::Relaxed);
    }

    /// Bytes that arenas currently hold.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.account.taken.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> Result<(), BackendError> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|&taken| taken <= self.cap());
        match self.account.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(taken) => Err(BackendError::out_of_memory(bytes, Some(self.cap().saturating_sub(taken)))),
        }
    }
}

/// An arena's share of an allowance, if there is one; returned with the arena.
#[derive(Debug)]
pub(in crate::arena) struct QuotaUse {
    allowance: Option<Allowance>,
    taken: AtomicU64,
}

impl QuotaUse {
    pub(in crate::arena) fn of(allowance: Option<Allowance>) -> Self {
        Self { allowance, taken: AtomicU64::new(0) }
    }

    /// Whether there is no limit, so that no other arena is short of the bytes taken.
    pub(in crate::arena) fn is_unlimited(&self) -> bool {
        self.allowance.as_ref().is_none_or(|allowance| allowance.limit().is_none())
    }

    pub(in crate::arena) fn take(&self, bytes: u64) -> Result<(), BackendError> {
        if let Some(allowance) = &self.allowance {
            allowance.take(bytes)?;
            self.taken.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns a guard for part of what is taken, to be dropped after memory whose destructor may panic.
    pub(in crate::arena) fn returned(&self, bytes: u64) -> Returned<'_> {
        Returned { share: self, bytes }
    }

    pub(in crate::arena) fn give(&self, bytes: u64) {
        if let Some(allowance) = &self.allowance {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
            allowance.account.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for QuotaUse {
    fn drop(&mut self) {
        self.give(self.taken.load(Ordering::Relaxed));
    }
}

/// Part of an allowance. Returned on drop, unless it is [kept](Self::keep).
#[derive(Debug)]
#[must_use = "it is returned at once otherwise, before the memory is"]
pub(in crate::arena) struct Returned<'a> {
    share: &'a QuotaUse,
    bytes: u64,
}

impl Returned<'_> {
    pub(in crate::arena) fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        self.share.give(self.bytes);
    }
}
