//! A block of bytes: a slot of a slab, or a mapping.

use super::ranges::{Range, discard};
use super::slabs::{MAP_FROM, Slabs, Slot};
use std::ptr::NonNull;
use std::sync::Arc;

/// Keeps the bytes of a block alive. Never read: the block's pointer is the only way to them.
#[derive(Debug)]
enum Storage {
    Small { _slot: Slot },
    Mapped { _range: Range },
}

/// Zeroed bytes.
#[derive(Debug)]
pub(crate) struct Block {
    base: NonNull<u8>,
    len: u64,
    _storage: Storage,
}

// SAFETY: `base` points into `_storage`, which the block owns and which never moves its bytes (a slot and a
// map are addresses of them), so sending a block sends the only way to them.
unsafe impl Send for Block {}
// SAFETY: a shared block gives out its address and length; its bytes are reached only in `Claims::with`,
// which lets no two callers have overlapping ranges unless both only read.
unsafe impl Sync for Block {}

impl Block {
    /// `None` when the system has no memory of this size.
    pub(crate) fn new(bytes: u64, slabs: &Arc<Slabs>) -> Option<Self> {
        let len = usize::try_from(bytes).ok().filter(|&len| len > 0 && isize::try_from(len).is_ok())?;
        if bytes < MAP_FROM {
            let slot = slabs.take(bytes)?;
            return Some(Self { base: slot.base(), len: bytes, _storage: Storage::Small { _slot: slot } });
        }
        let mut range = slabs.ranges().take(len)?;
        Some(Self { base: range.base()?, len: bytes, _storage: Storage::Mapped { _range: range } })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes, of which the caller has the one reference.
    pub(crate) fn bytes(&mut self) -> &[u8] {
        // SAFETY: `base` is the start of `len` bytes, which are initialised (every storage starts zeroed) and live as
        // long as the block. `Claims::with` reaches them through a shared reference to the block alone, and there
        // is none while this exclusive one is borrowed.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len as usize) }
    }

    /// Returns the memory behind a separate mapping to the system, given all its bytes. Returns whether it did.
    pub(crate) fn discard(&self, bytes: &mut [u8]) -> bool {
        let is_all = std::ptr::eq(bytes.as_ptr(), self.base.as_ptr()) && bytes.len() as u64 == self.len;
        is_all && matches!(self._storage, Storage::Mapped { .. }) && discard(bytes)
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

#[cfg(test)]
mod tests {
    use super::super::slabs::ALIGNMENT;
    use super::*;

    #[test]
    fn sizes_that_no_system_has_are_refused() {
        for bytes in [0, 1 << 62, u64::MAX] {
            assert!(Block::new(bytes, &Arc::default()).is_none());
        }
    }

    #[test]
    fn every_storage_is_aligned() {
        for bytes in [100, MAP_FROM + 1] {
            let block = Block::new(bytes, &Arc::default()).expect("memory");
            assert!((block.base().as_ptr() as u64).is_multiple_of(ALIGNMENT));
        }
    }
}
