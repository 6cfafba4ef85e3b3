//! Usage figures: mapped, live and sleeping bytes.

use std::ops::AddAssign;

/// Bytes of a sleeper, or of one of its tags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct SleepUsage {
    /// Bytes of physical memory of the device.
    pub mapped: u64,
    /// Bytes of usable blocks.
    pub live: u64,
    /// Bytes of sleeping blocks.
    pub asleep: u64,
    /// Bytes of host memory that holds contents, including memory that is being released.
    pub backups: u64,
    /// Bytes of address space. On a device with virtual memory it exceeds `mapped`, and is the same asleep
    /// and awake.
    pub addresses: u64,
}

impl AddAssign for SleepUsage {
    fn add_assign(&mut self, other: Self) {
        self.mapped += other.mapped;
        self.live += other.live;
        self.asleep += other.asleep;
        self.backups += other.backups;
        self.addresses += other.addresses;
    }
}
