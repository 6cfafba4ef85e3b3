//! The share of a pool's limit that is guaranteed to a child. Numbers only, which change under the pool's lock.
//!
//! ```text
//! charged + unused parts of all shares ≤ limit, while there are shares
//! ```
//!
//! The unused part of a share counts against the limit as if it were charged. A request of the child uses it first, so
//! only the rest of the request needs room within the limit.

use crate::heap::accounts::Accounts;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A child's share, and the bytes that the pool has charged for the child.
#[derive(Debug, Default)]
pub(crate) struct Share {
    bytes: AtomicU64,
    charged: AtomicU64,
}

impl Share {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns the charged bytes beyond it.
    pub(crate) fn excess(&self) -> u64 {
        self.charged.load(Relaxed).saturating_sub(self.bytes())
    }

    fn unused(&self) -> u64 {
        self.unused_of(self.bytes())
    }

    fn unused_of(&self, share: u64) -> u64 {
        share.saturating_sub(self.charged.load(Relaxed))
    }
}

/// Returns the part of a request that needs room within the limit: all of it, if it is no child's.
#[inline]
pub(crate) fn beyond(share: Option<&Share>, class: u64) -> u64 {
    share.map_or(class, |share| class.saturating_sub(share.unused()))
}

impl Accounts {
    /// Counts `bytes` as charged for the child with this share, if any.
    #[inline]
    pub(crate) fn charge(&mut self, share: Option<&Share>, bytes: u64) {
        if let Some(share) = share {
            self.change(share, |share| _ = share.charged.fetch_add(bytes, Relaxed));
        }
    }

    /// Counts `bytes` as no longer charged for the child with this share, if any: released, or a cancelled reservation.
    #[inline]
    pub(crate) fn discharge(&mut self, share: Option<&Share>, bytes: u64) {
        if let Some(share) = share {
            self.change(share, |share| _ = share.charged.fetch_sub(bytes, Relaxed));
        }
    }

    /// Returns the unused bytes of all shares but one.
    pub(crate) fn unused_shares_beside(&self, share: Option<&Share>) -> u64 {
        self.unused_shares + self.others.unused_shares - share.map_or(0, Share::unused)
    }

    /// Sets a share to `bytes`, and cancels the `reserved` bytes that made room for it.
    ///
    /// # Errors
    /// The bytes to reserve instead. A share does not grow beyond the reserved bytes, nor while more is charged than a
    /// lowered limit.
    pub(crate) fn set_share(&mut self, share: &Share, bytes: u64, reserved: u64) -> Result<(), u64> {
        let more = share.unused_of(bytes).saturating_sub(share.unused());
        let charged = (self.charged_together() - reserved).saturating_add(more);
        if bytes > share.bytes() && (more > reserved || charged > self.caps.limit) {
            return Err(more.max(1));
        }
        if reserved > 0 {
            self.cancel(reserved);
        }
        self.shares = self.shares - share.bytes() + bytes;
        self.change(share, |share| share.bytes.store(bytes, Relaxed));
        Ok(())
    }

    /// Ends a share.
    pub(crate) fn end_share(&mut self, share: &Share) {
        let _ends = self.set_share(share, 0, 0);
    }

    fn change(&mut self, share: &Share, change: impl FnOnce(&Share)) {
        let before = share.unused();
        change(share);
        self.unused_shares = self.unused_shares - before + share.unused();
        self.changes += 1;
    }
}
