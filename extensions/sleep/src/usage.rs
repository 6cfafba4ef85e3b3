//! Figures: mapped, live and sleeping bytes, by tag, and counts of sleeps and wakes.

use crate::arena::SleepArena;
use crate::error::Error;
use crate::reports::SleepReport;
#[cfg(feature = "metrics")]
use std::sync::LazyLock;
use std::time::Duration;
use vrampool::Backend;
use vrampool::arena::Attachment;
use vrampool::figures;
use vrampool::figures::FigureLabel;
#[cfg(feature = "metrics")]
use vrampool::{figures::Figure, figures::Group, telemetry::OwnerFigures};

figures! {
    /// Bytes of memory that sleeps: of an arena, or of all tags together.
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
    /// A tag, in metrics.
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
    /// Sleeps and wakes of tags together, since their owner was created.
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
        count(slept, &mut self.sleeps, &mut self.failed_sleeps, &mut self.time);
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
        count(woken, &mut self.wakes, &mut self.failed_wakes, &mut self.time);
    }
}

fn count(done: &Result<SleepReport, Error>, succeeded: &mut u64, failed: &mut u64, time: &mut Duration) {
    *if done.is_ok() { succeeded } else { failed } += 1;
    *time += done.as_ref().map_or(Duration::ZERO, |report| report.elapsed);
}

impl SleepUsage {
    /// Returns the usage of an arena.
    ///
    /// ```
    /// # use vrampool::{Backend, arena::DeviceArena, host::HostDevice};
    /// # use vrampool_sleep::{Error, Offload, SleepArena, SleepUsage};
    /// # fn main() -> Result<(), Error> {
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// let arena = SleepArena::new(DeviceArena::builder(&device).growing().build()?);
    /// let _block = arena.arena().allocate(4 << 20, &device.create_stream()?)?;
    /// let _ = arena.sleep(Offload::Discard)?;
    /// let usage = SleepUsage::of(&arena);
    /// assert_eq!((usage.mapped_bytes, usage.asleep_bytes), (0, 4 << 20));
    /// # Ok(())
    /// # }
    /// ```
    pub fn of<B: Backend>(sleep: &SleepArena<B>) -> Self {
        let arena = sleep.arena();
        let (used, is_asleep) = (arena.used(), arena.attachment() == Attachment::Detached);
        Self {
            mapped_bytes: arena.reserved_bytes(),
            live_bytes: if is_asleep { 0 } else { used },
            asleep_bytes: if is_asleep { used } else { 0 },
            backup_bytes: sleep.backup_bytes(),
            address_bytes: arena.address_bytes(),
        }
    }
}

/// The exported figures of [`figures_of`].
///
/// ```
/// assert!(vrampool_sleep::METRICS.iter().all(|figure| figure.metric.starts_with("vrampool_sleep_")));
/// ```
#[cfg(feature = "metrics")]
pub static METRICS: LazyLock<Vec<&'static Figure>> = LazyLock::new(|| {
    let figures = [SleepUsage::table(), SleepCounts::table(), TagUsage::table()].concat();
    figures.into_iter().filter(|figure| figure.is_exported()).collect()
});

/// Returns the figures of arenas that sleep by tag, for an [`Owner`](vrampool::telemetry::Owner) of another crate. All
/// tags together are read one by one. A tag may have several arenas.
///
/// ```
/// # use vrampool::{Backend, arena::DeviceArena, host::HostDevice};
/// # use vrampool_sleep::{Error, Offload, SleepArena, SleepCounts, figures_of};
/// # fn main() -> Result<(), Error> {
/// # let device = HostDevice::new();
/// # if device.virtual_memory().is_none() { return Ok(()) }
/// let arena = SleepArena::new(DeviceArena::builder(&device).growing().build()?);
/// let mut counts = SleepCounts::default();
/// counts.count_sleep(&arena.sleep(Offload::Pinned));
/// let figures = figures_of([("weights", &arena)], &counts); // of an implementation of `Owner::figures`
/// # drop(figures);
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "metrics")]
#[must_use]
pub fn figures_of<'a, B: Backend>(
    arenas: impl IntoIterator<Item = (&'a str, &'a SleepArena<B>)>,
    counts: &SleepCounts,
) -> OwnerFigures {
    let (mut all, mut by_tag) = (SleepUsage::default(), Vec::<(_, TagUsage)>::new());
    for (tag, arena) in arenas {
        let usage = SleepUsage::of(arena);
        all.merge(&usage);
        let asleep = u64::from(arena.arena().attachment() != Attachment::Attached);
        let SleepUsage { live_bytes, asleep_bytes, backup_bytes, .. } = usage;
        let usage = TagUsage { asleep, live_bytes, asleep_bytes, backup_bytes };
        match by_tag.iter_mut().find(|(known, _)| *known == tag) {
            Some((_, sum)) => {
                sum.merge(&usage);
                sum.asleep = sum.asleep.min(1);
            }
            None => by_tag.push((tag, usage)),
        }
    }
    let mut figures = OwnerFigures::of(&all);
    figures.add("", counts);
    by_tag.iter().for_each(|(tag, usage)| figures.add(tag, usage));
    figures
}
