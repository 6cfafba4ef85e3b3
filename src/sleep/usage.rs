//! Usage figures: mapped, live and sleeping bytes.

use std::ops::AddAssign;

/// Bytes of a sleeper, or of one of its tags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct SleepUsage {
    /// Of physical memory of the device.
    pub mapped: u64,
    /// Of blocks that can be used.
    pub live: u64,
    /// Of blocks that are asleep.
    pub asleep: u64,
    /// Of host memory that holds their contents, or did and is being given back.
    pub backups: u64,
    /// Of address space: on a device with virtual memory more than what is mapped, and asleep as much as
    /// awake.
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
