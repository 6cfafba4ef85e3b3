//! The metrics of a sleeper: its memory, by tag, and its sleeps and wakes.

use crate::arena::SleepArena;
use crate::shared::Shared;
use crate::sleeper::Sleeper;
use crate::usage::{SleepCounts, SleepUsage, TagUsage};
use std::sync::{LazyLock, Weak};
use vrampool::Backend;
use vrampool::backend::fork::ForkArc;
use vrampool::figures::{Figure, Group};
use vrampool::telemetry::{Closing, Observed, Owner, OwnerFigures, Watch};

/// The exported figures of a sleeper. Each metric has the labels `sleeper`, `backend` and `device`.
///
/// ```
/// assert!(vrampool_sleep::METRICS.iter().all(|figure| figure.metric.starts_with("vrampool_sleep_")));
/// ```
pub static METRICS: LazyLock<Vec<&'static Figure>> = LazyLock::new(|| {
    let figures = [SleepUsage::table(), SleepCounts::table(), TagUsage::table()].concat();
    figures.into_iter().filter(|figure| figure.is_exported()).collect()
});

/// Returns the figures of arenas that sleep by tag, for an [`Owner`] of another crate. All tags together are read one by one.
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
#[must_use]
pub fn figures_of<'a, B: Backend>(
    arenas: impl IntoIterator<Item = (&'a str, &'a SleepArena<B>)>,
    counts: &SleepCounts,
) -> OwnerFigures {
    let (mut all, mut by_tag) = (SleepUsage::default(), Vec::new());
    for (tag, arena) in arenas {
        all += SleepUsage::of(arena);
        by_tag.push((tag, TagUsage::of(arena)));
    }
    let mut figures = OwnerFigures::of(&all);
    figures.add("", counts);
    by_tag.iter().for_each(|(tag, usage)| figures.add(tag, usage));
    figures
}

/// The statistics of a sleeper, for [`publish`](vrampool::telemetry::publish) and for publishers.
///
/// ```
/// # use vrampool::{Backend, host::HostDevice};
/// # use vrampool_sleep::{Error, METRICS, Sleeper};
/// use vrampool::telemetry::{describe, publish};
/// # fn main() -> Result<(), Error> {
/// # let device = HostDevice::new();
/// # if device.virtual_memory().is_none() { return Ok(()) }
/// # let sleeper = Sleeper::new(&device)?;
/// describe(&METRICS);
/// publish(&sleeper); // from a timer of the application
/// # Ok(())
/// # }
/// ```
impl<B: Backend> Owner for Sleeper<B> {
    type Device = B;

    const LABEL: &'static str = "sleeper";

    fn name(&self) -> &str {
        self.name()
    }

    fn device(&self) -> &B {
        self.device()
    }

    fn figures(&self) -> OwnerFigures {
        let arenas = self.shared.arenas();
        figures_of(arenas.iter().map(|(tag, arena)| (&**tag, arena)), &self.counts())
    }

    fn watch(&self) -> impl Watch + 'static {
        WatchedSleeper(ForkArc::downgrade(&self.shared))
    }
}

/// A sleeper that is not kept alive.
struct WatchedSleeper<B: Backend>(Weak<Shared<B>>);

impl<B: Backend> Watch for WatchedSleeper<B> {
    fn observe(&mut self) -> Observed {
        let Some(shared) = self.0.upgrade() else { return Observed::Ended(None) };
        let sleeper = Sleeper { shared: ForkArc::from(shared) };
        let figures = sleeper.figures();
        let last = ForkArc::into_inner(sleeper.shared).map(|last| Box::new(last) as Closing);
        Observed::There(figures, last)
    }

    fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    fn place(&self) -> usize {
        self.0.as_ptr().addr()
    }
}
