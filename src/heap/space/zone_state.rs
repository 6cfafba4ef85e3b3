//! One zone of an arena: its bounds and accounts.

use super::free::FreeBlocks;
use super::zone::Zone;

#[derive(Debug)]
pub(super) struct ZoneState {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) free: FreeBlocks,
    pub(super) used: u64,
    /// Bytes that are neither live nor free.
    pub(super) held: u64,
}

impl ZoneState {
    pub(super) fn new(zone: Zone, start: u64, end: u64, shift: u32) -> Self {
        Self { start, end, free: FreeBlocks::new(zone, end - start, shift), used: 0, held: 0 }
    }
}

/// A zone's space, while the arena's other fields are borrowed too.
#[inline]
pub(super) fn choose<'a>(
    stable: &'a mut ZoneState,
    dynamic: &'a mut ZoneState,
    zone: Zone,
) -> &'a mut ZoneState {
    match zone {
        Zone::Stable => stable,
        Zone::Dynamic => dynamic,
    }
}
