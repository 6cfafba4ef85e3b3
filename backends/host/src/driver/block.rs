//! Bytes of their own: on the heap, or mapped.

use super::ranges::{Range, Ranges};
use std::ptr::NonNull;
use std::sync::Arc;

/// What every block's start is aligned to, bytes: a cache line, and more than any vector load needs.
pub(crate) const ALIGNMENT: u64 = 64;

/// From this size on a block is mapped, so that pages nobody touches cost nothing, bytes.
const MAP_FROM: u64 = 64 * 1024;

/// Keeps the bytes of a block alive. Never read: the block's pointer is the only way to them.
#[derive(Debug)]
enum Storage {
    /// A `Vec` and not a `Box`, because moving a box would claim its bytes to be reached through it alone.
    Heap {
        _lines: Vec<Line>,
    },
    Mapped {
        _range: Range,
    },
}

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT as usize]);

/// Zeroed bytes.
#[derive(Debug)]
pub(crate) struct Block {
    base: NonNull<u8>,
    len: u64,
    _storage: Storage,
}

// SAFETY: `base` points into `_storage`, which the block owns and which never moves its bytes (a vector and a map are
// pointers to them), so sending a block sends the only way to them.
unsafe impl Send for Block {}
// SAFETY: a shared block gives out its address and length; its bytes are reached only in `Claims::with`, which lets no
// two callers have overlapping ranges unless both only read.
unsafe impl Sync for Block {}

impl Block {
    /// `None` when the system has no memory of this size.
    pub(crate) fn new(bytes: u64, ranges: &Arc<Ranges>) -> Option<Self> {
        let len = usize::try_from(bytes).ok().filter(|&len| len > 0 && isize::try_from(len).is_ok())?;
        if bytes >= MAP_FROM {
            let mut range = ranges.take(len)?;
            let base = range.base()?;
            return Some(Self { base, len: bytes, _storage: Storage::Mapped { _range: range } });
        }
        let mut lines = vec![Line([0; ALIGNMENT as usize]); len.div_ceil(ALIGNMENT as usize)];
        let base = NonNull::new(lines.as_mut_ptr().cast())?;
        Some(Self { base, len: bytes, _storage: Storage::Heap { _lines: lines } })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

#[cfg(test)]
mod tests {
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
