//! Numbers of pools, under which threads keep their magazines.

use crate::sync::GlobalMutex;

/// The most pools with magazines at a time, plus one. A `u8` index needs no bounds check.
#[cfg(not(model))]
pub(crate) const SLOTS: usize = 256;
#[cfg(model)]
pub(crate) const SLOTS: usize = 4;

/// The number of pools without magazines; no thread has a cache for it.
pub(crate) const NO_SLOT: u8 = (SLOTS - 1) as u8;

/// Slots in use.
static TAKEN: GlobalMutex<[bool; SLOTS]> = GlobalMutex::new([false; SLOTS]);

/// Claims a slot that no open pool has. Returns `NO_SLOT` when all are taken.
pub(crate) fn take() -> u8 {
    let mut taken = TAKEN.lock();
    let Some(slot) = (0..NO_SLOT).find(|&slot| !taken[usize::from(slot)]) else { return NO_SLOT };
    taken[usize::from(slot)] = true;
    slot
}

/// Releases the slot of a dropped pool for another one.
pub(crate) fn release(slot: u8) {
    TAKEN.lock()[usize::from(slot)] = false;
}
