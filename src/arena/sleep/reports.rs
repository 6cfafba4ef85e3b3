//! States of memory and blocks, and results of a sleep and a wake.

use bytesize::ByteSize;
use std::fmt;

/// Whether memory is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SleepState {
    /// Mapped and usable.
    Awake,
    /// A sleep or a wake is in progress.
    Changing,
    /// The physical memory is released to the device.
    Asleep,
}

/// The location of a block's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockState {
    /// In device memory.
    Mapped,
    /// In host memory; a wake restores them.
    AsleepBackedUp,
    /// Discarded; undefined after a wake.
    AsleepDiscarded,
}

/// Results of a sleep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
#[must_use]
pub struct SleepReport {
    /// Physical memory released to the device, bytes.
    pub freed_bytes: u64,
    /// Bytes of blocks copied to the host.
    pub backed_up_bytes: u64,
    /// Bytes of blocks discarded.
    pub discarded_bytes: u64,
    /// Whether the arena was already asleep, so that nothing was done and its backups are unchanged.
    pub was_asleep: bool,
}

/// Results of a wake.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
#[must_use]
pub struct WakeReport {
    /// Physical memory allocated from the device, bytes.
    pub mapped_bytes: u64,
    /// Bytes of blocks restored from the host.
    pub restored_bytes: u64,
    /// Whether the arena was already awake, so that nothing was done.
    pub was_awake: bool,
}

impl fmt::Display for SleepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [freed, backed_up, discarded] =
            [self.freed_bytes, self.backed_up_bytes, self.discarded_bytes].map(ByteSize);
        let already = if self.was_asleep { " (already asleep)" } else { "" };
        write!(f, "freed {freed}, backed up {backed_up}, discarded {discarded}{already}")
    }
}

impl fmt::Display for WakeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [mapped, restored] = [self.mapped_bytes, self.restored_bytes].map(ByteSize);
        let already = if self.was_awake { " (already awake)" } else { "" };
        write!(f, "mapped {mapped}, restored {restored}{already}")
    }
}
