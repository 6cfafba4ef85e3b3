//! Limits on bytes, and the bytes that are charged to them.

use crate::{BackendError, Scarce, fork};
use std::iter;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A limit on bytes, and the bytes that are charged to it. A clone is a handle to the same ledger.
///
/// Ledgers form trees: bytes that are charged to a [child](Self::child) are charged to all ledgers above it, too, or
/// its [share](Self::set_share), if that is more. Each limit holds exactly, under any number of threads. A refused
/// request changes no ledger, not even for a moment.
///
/// ```
/// use vrampool_backend::spi::Ledger;
///
/// # fn main() -> Result<(), vrampool_backend::BackendError> {
/// let device = Ledger::new(1000);
/// let (one, two) = (device.child(None), device.child(700));
/// let mut grant = one.reserve(600)?;
/// assert!(two.reserve(600).unwrap_err().is_out_of_memory());
/// drop(grant.split(300));
/// let _other = two.reserve(600)?;
/// assert_eq!((one.charged(), two.charged(), device.charged()), (300, 600, 900));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Node>);

#[derive(Debug)]
struct Node {
    /// Of the owner, for errors.
    name: Arc<str>,
    /// No limit is `u64::MAX`.
    limit: AtomicU64,
    /// Bytes that are charged above at least.
    share: AtomicU64,
    charged: AtomicU64,
    peak: AtomicU64,
    parent: Option<Ledger>,
    /// Held by every change of a ledger of the tree.
    changing: Arc<Mutex<()>>,
}

/// Bytes that are charged to a ledger until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it returns the bytes"]
pub struct Grant {
    ledger: Ledger,
    bytes: u64,
}

impl Ledger {
    /// Creates a ledger of at most `limit` bytes. `None` is no limit.
    #[must_use]
    pub fn new(limit: impl Into<Option<u64>>) -> Self {
        Self::named("", limit)
    }

    /// As [`new`](Self::new). Errors of a refusal have the `name`.
    #[must_use]
    pub fn named(name: &str, limit: impl Into<Option<u64>>) -> Self {
        Self::of(name.into(), limit.into(), None, Arc::default())
    }

    /// Creates a ledger whose bytes are charged to this one, too.
    #[must_use]
    pub fn child(&self, limit: impl Into<Option<u64>>) -> Self {
        self.named_child(&self.0.name, limit)
    }

    /// As [`child`](Self::child), with a separate name.
    #[must_use]
    pub fn named_child(&self, name: &str, limit: impl Into<Option<u64>>) -> Self {
        Self::of(name.into(), limit.into(), Some(self.clone()), Arc::clone(&self.0.changing))
    }

    fn of(name: Arc<str>, limit: Option<u64>, parent: Option<Self>, changing: Arc<Mutex<()>>) -> Self {
        let limit = AtomicU64::new(limit.unwrap_or(u64::MAX));
        let [share, charged, peak] = [(); 3].map(|()| AtomicU64::new(0));
        Self(Arc::new(Node { name, limit, share, charged, peak, parent, changing }))
    }

    /// Returns the name of its owner; empty if it has none.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Returns the limit of this ledger alone, bytes; `None` if it has none.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        // Relaxed, here and below: only the numbers matter, and they change under the lock.
        Some(self.0.limit.load(Relaxed)).filter(|&limit| limit != u64::MAX)
    }

    /// Changes the limit. While more bytes are charged, requests for more fail.
    pub fn set_limit(&self, bytes: impl Into<Option<u64>>) {
        self.0.limit.store(bytes.into().unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the charged bytes, with the unused shares of ledgers below.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.0.charged.load(Relaxed)
    }

    /// Reserves bytes of the ledgers above for this one: its unused part is charged there.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve), if a ledger above has no room for a larger share, which is then unchanged.
    pub fn set_share(&self, bytes: u64) -> Result<(), BackendError> {
        fork::check()?;
        let _changing = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, charged) = (self.counted(self.charged()), self.charged());
        let after = charged.max(bytes);
        if let Some(parent) = &self.0.parent {
            if after > before {
                parent.check(after - before)?;
                parent.add(after - before);
            } else {
                parent.subtract(before - after);
            }
        }
        self.0.share.store(bytes, Relaxed);
        Ok(())
    }

    /// The bytes that are counted in the parent ledger.
    fn counted(&self, charged: u64) -> u64 {
        charged.max(self.0.share.load(Relaxed))
    }

    /// Returns the most bytes that were charged at a time.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.0.peak.load(Relaxed)
    }

    /// Returns the bytes that this ledger and those above it leave; `u64::MAX` without any limit.
    #[must_use]
    pub fn free(&self) -> u64 {
        let above = self.0.parent.as_ref().map_or(u64::MAX, Self::free);
        let unused = self.0.share.load(Relaxed).saturating_sub(self.charged());
        self.own_free().min(above.saturating_add(unused))
    }

    /// Charges `bytes` to this ledger and those above it.
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`] if a limit leaves less, with the [limit](Scarce::Limit) that leaves least;
    /// [`BackendError::Forked`].
    pub fn reserve(&self, bytes: u64) -> Result<Grant, BackendError> {
        fork::check()?;
        let _changing = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check(bytes)?;
        self.add(bytes);
        Ok(Grant { ledger: self.clone(), bytes })
    }

    /// Whether `bytes` more fit in this ledger and those above it.
    fn check(&self, bytes: u64) -> Result<(), BackendError> {
        let mut more = bytes;
        for ledger in self.up() {
            let charged = ledger.charged();
            // Without a limit the sum must not overflow either.
            let Some(sum) = charged.checked_add(more).filter(|_| more <= ledger.own_free()) else {
                return Err(BackendError::lacks(bytes, self.scarcest()));
            };
            more = ledger.counted(sum) - ledger.counted(charged);
        }
        Ok(())
    }

    /// Charges `bytes`, if necessary beyond the limits, for indispensable memory.
    pub fn force(&self, bytes: u64) -> Grant {
        if fork::is_forked() {
            return Grant { ledger: self.clone(), bytes: 0 };
        }
        let _changing = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = self.up().map(|ledger| u64::MAX - ledger.charged()).fold(bytes, u64::min);
        self.add(bytes);
        Grant { ledger: self.clone(), bytes }
    }

    fn add(&self, bytes: u64) {
        self.change(bytes, u64::saturating_add);
    }

    fn subtract(&self, bytes: u64) {
        self.change(bytes, u64::saturating_sub);
    }

    fn change(&self, mut bytes: u64, by: fn(u64, u64) -> u64) {
        for ledger in self.up() {
            let before = ledger.charged();
            let charged = by(before, bytes);
            ledger.0.charged.store(charged, Relaxed);
            ledger.0.peak.fetch_max(charged, Relaxed);
            bytes = ledger.counted(charged).abs_diff(ledger.counted(before));
        }
    }

    /// The limit that leaves least.
    fn scarcest(&self) -> Scarce {
        let Self(node) = self.up().min_by_key(|ledger| ledger.own_free()).unwrap_or(self);
        Scarce::limit(&node.name, node.limit.load(Relaxed), node.charged.load(Relaxed))
    }

    fn own_free(&self) -> u64 {
        self.0.limit.load(Relaxed).saturating_sub(self.charged())
    }

    /// This ledger and those above it.
    fn up(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |ledger| ledger.0.parent.as_ref())
    }
}

impl Grant {
    /// Returns the charged bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves at most `bytes` to a grant of their own.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { ledger: self.ledger.clone(), bytes }
    }

    /// Adds the bytes of another grant of the same ledger.
    ///
    /// # Errors
    /// The other grant, if its ledger is another one.
    pub fn merge(&mut self, mut other: Self) -> Result<(), Self> {
        if !Arc::ptr_eq(&self.ledger.0, &other.ledger.0) {
            return Err(other);
        }
        self.bytes += mem::take(&mut other.bytes);
        Ok(())
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.bytes == 0 || fork::is_forked() {
            return;
        }
        let _changing = self.ledger.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.ledger.subtract(self.bytes);
    }
}
