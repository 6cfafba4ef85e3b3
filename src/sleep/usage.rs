//! Usage figures: mapped, live and sleeping bytes.

use bytesize::ByteSize;
use std::fmt;
use std::ops::AddAssign;

/// Bytes of a sleeper, or of one of its tags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
#[must_use]
pub struct SleepUsage {
    /// Bytes of physical memory of the device.
    pub mapped_bytes: u64,
    /// Bytes of usable blocks.
    pub live_bytes: u64,
    /// Bytes of sleeping blocks.
    pub asleep_bytes: u64,
    /// Bytes of host memory that holds contents, including memory that is being released.
    pub backup_bytes: u64,
    /// Bytes of address space. On a device with virtual memory it exceeds `mapped`, and is the same asleep
    /// and awake.
    pub address_bytes: u64,
}

impl fmt::Display for SleepUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all =
            [self.mapped_bytes, self.live_bytes, self.asleep_bytes, self.backup_bytes, self.address_bytes];
        let [mapped, live, asleep, backups, addresses] = all.map(ByteSize);
        write!(f, "mapped {mapped}, live {live}, asleep {asleep}, backups {backups}, addresses {addresses}")
    }
}

impl AddAssign for SleepUsage {
    fn add_assign(&mut self, other: Self) {
        self.mapped_bytes += other.mapped_bytes;
        self.live_bytes += other.live_bytes;
        self.asleep_bytes += other.asleep_bytes;
        self.backup_bytes += other.backup_bytes;
        self.address_bytes += other.address_bytes;
    }
}
