//! The layout of an arena: capacity, zones and alignment.

use super::error::ArenaError;

/// The capacity, zones and alignment of an arena.
///
/// ```
/// use vrampool::arena::{Arena, ArenaError, ArenaLayout};
/// let arena = Arena::new(ArenaLayout::new(1 << 30).stable_bytes(100 << 20).alignment(512))?;
/// assert_eq!(arena.capacity(), 1 << 30);
/// let refused = Arena::new(ArenaLayout::new(4096).alignment(48));
/// assert!(matches!(refused, Err(ArenaError::Alignment { alignment: 48, .. })));
/// assert!(matches!(Arena::new(ArenaLayout::new(4096).stable_bytes(4096)), Err(ArenaError::StableTooLarge { .. })));
/// # Ok::<(), ArenaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct ArenaLayout {
    capacity: u64,
    stable_bytes: u64,
    alignment: u64,
}

impl ArenaLayout {
    /// Returns a dynamic layout of `capacity` bytes, rounded down to the alignment. 0 is valid.
    pub fn new(capacity: u64) -> Self {
        Self { capacity, stable_bytes: 0, alignment: 256 }
    }

    /// Sets the size of the stable zone at the front, bytes, rounded up to the alignment. Default: 0.
    pub fn stable_bytes(mut self, bytes: u64) -> Self {
        self.stable_bytes = bytes;
        self
    }

    /// Sets the unit of sizes and offsets, bytes; a power of two. Default: 256, CUDA's guaranteed alignment.
    pub fn alignment(mut self, bytes: u64) -> Self {
        self.alignment = bytes;
        self
    }

    /// Returns the alignment as a power of two, the stable zone's end, and the capacity, rounded.
    pub(super) fn measure(self) -> Result<(u32, u64, u64), ArenaError> {
        let Self { capacity, stable_bytes, alignment } = self;
        if !alignment.is_power_of_two() {
            return Err(ArenaError::Alignment { alignment });
        }
        let end = capacity & !(alignment - 1);
        match stable_bytes.checked_next_multiple_of(alignment) {
            Some(stable) if stable == 0 || stable < end => Ok((alignment.trailing_zeros(), stable, end)),
            _ => Err(ArenaError::StableTooLarge { stable_bytes, capacity_bytes: capacity }),
        }
    }
}
