//! Usage figures: mapped, live and sleeping bytes.

use crate::arena::SleepArena;
use crate::error::Error;
use crate::reports::{SleepReport, SleepState};
use bytesize::ByteSize;
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;
use vrampool::Backend;
use vrampool::figures;
use vrampool::figures::{FigureLabel, Group};

figures! {
    /// Bytes of a sleeper, or of one of its tags.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    #[must_use]
    pub struct SleepUsage("sleep_", FigureLabel::None) {
        Gauge mapped_bytes: u64, "bytes", "Bytes of physical memory of the device.";
        Gauge live_bytes: u64, "bytes", "Bytes of usable blocks.";
        Gauge asleep_bytes: u64, "bytes", "Bytes of sleeping blocks.";
        Gauge backup_bytes: u64, "bytes",
            "Bytes of host memory that holds contents, including memory that is being released.";
        Gauge address_bytes: u64, "bytes",
            "Bytes of address space: more than the mapped bytes, and the same asleep and awake.";
    }
}

figures! {
    /// A tag of a sleeper, in metrics.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    #[must_use]
    pub struct TagUsage("sleep_tag_", FigureLabel::Each("tag")) {
        Gauge asleep: u64, "", "1 if the tag is asleep or changes its state, 0 if it is awake.";
        Gauge live_bytes: u64, "bytes", "Bytes of usable blocks of the tag.";
        Gauge asleep_bytes: u64, "bytes", "Bytes of sleeping blocks of the tag.";
        Gauge backup_bytes: u64, "bytes", "Bytes of host memory that holds contents of the tag.";
    }
}

figures! {
    /// Sleeps and wakes of a sleeper since it was created.
    ///
    /// ```
    /// # use vrampool::{Backend, host::HostDevice};
    /// # use vrampool_sleep::{Error, Sleeper, Wake};
    /// # fn main() -> Result<(), Error> {
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// # let stream = device.create_stream()?;
    /// let sleeper = Sleeper::new(&device)?;
    /// let block = sleeper.allocate(1000, &stream)?;
    /// sleeper.sleep(&[])?;
    /// sleeper.wake_up(Wake::All)?;
    /// assert_eq!((sleeper.counts().sleeps, sleeper.counts().wakes), (1, 1));
    /// # drop(block);
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    #[must_use]
    pub struct SleepCounts("sleep_", FigureLabel::None) {
        Counter sleeps: u64, "sleeps", "Sleeps and discards that succeeded.";
        Counter failed_sleeps: u64, "sleeps", "Sleeps and discards that failed.";
        Counter wakes: u64, "wakes", "Wakes that succeeded.";
        Counter failed_wakes: u64, "wakes", "Wakes that failed.";
        #[cfg_attr(feature = "serde", serde(skip))]
        Time time: Duration, "nanoseconds", "Time of the sleeps and wakes that succeeded.";
    }
}

impl SleepCounts {
    /// Counts a sleep or a discard by its result.
    ///
    /// ```
    /// # use vrampool_sleep::{SleepCounts, SleepReport};
    /// let mut counts = SleepCounts::default();
    /// counts.count_sleep(&Ok(SleepReport::default()));
    /// assert_eq!((counts.sleeps, counts.failed_sleeps), (1, 0));
    /// ```
    pub fn count_sleep(&mut self, slept: &Result<SleepReport, Error>) {
        match slept {
            Ok(report) => {
                self.sleeps += 1;
                self.time += report.elapsed;
            }
            Err(_) => self.failed_sleeps += 1,
        }
    }

    /// Counts a wake by its result.
    ///
    /// ```
    /// # use vrampool_sleep::{SleepCounts, SleepReport};
    /// let mut counts = SleepCounts::default();
    /// counts.count_wake(&Ok(SleepReport::default()));
    /// assert_eq!((counts.wakes, counts.failed_wakes), (1, 0));
    /// ```
    pub fn count_wake(&mut self, woken: &Result<SleepReport, Error>) {
        match woken {
            Ok(report) => {
                self.wakes += 1;
                self.time += report.elapsed;
            }
            Err(_) => self.failed_wakes += 1,
        }
    }
}

impl TagUsage {
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "for publishers"))]
    pub(super) fn of<B: Backend>(sleep: &SleepArena<B>) -> Self {
        let SleepUsage { live_bytes, asleep_bytes, backup_bytes, .. } = SleepUsage::of(sleep);
        let asleep = u64::from(sleep.state() != SleepState::Awake);
        Self { asleep, live_bytes, asleep_bytes, backup_bytes }
    }
}

impl SleepUsage {
    /// Returns the usage of a tag, whose blocks are in `arena`.
    pub(super) fn of<B: Backend>(sleep: &SleepArena<B>) -> Self {
        let arena = sleep.arena();
        let (used, is_asleep) = (arena.used(), sleep.state() == SleepState::Asleep);
        Self {
            mapped_bytes: arena.reserved_bytes(),
            live_bytes: if is_asleep { 0 } else { used },
            asleep_bytes: if is_asleep { used } else { 0 },
            backup_bytes: sleep.backup_bytes(),
            address_bytes: arena.address_bytes(),
        }
    }
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
        self.merge(&other);
    }
}
