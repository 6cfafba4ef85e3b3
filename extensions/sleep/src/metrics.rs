//! The metrics of a sleeper: its memory, by tag, and its sleeps and wakes.

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
        let mut figures = OwnerFigures::of(&self.usage());
        figures.add("", &self.counts());
        for (tag, arena) in self.shared.arenas() {
            figures.add(&tag, &TagUsage::of(&arena));
        }
        figures
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
