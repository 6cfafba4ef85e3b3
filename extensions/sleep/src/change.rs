//! Sleep, discard and wake of several tags, each all or nothing.

use crate::error::Error;
use crate::level::Level;
use crate::offload::Offload;
use crate::progress;
use crate::reports::SleepReport;
use crate::several::{sleep_all, wake_all};
use crate::sleeper::Sleeper;
use crate::tag::DEFERRABLE_TAGS;
use std::time::Duration;
use vrampool::Backend;
use vrampool::backend::fork;

/// The tags to wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake<'a> {
    /// All tags.
    All,
    /// These tags, and all that are not [deferrable](crate::DEFERRABLE_TAGS), because internal memory of a
    /// program wakes with any part of it.
    Tags(&'a [&'a str]),
}

impl Wake<'_> {
    /// Whether it wakes this tag.
    #[must_use]
    pub fn wakes(&self, tag: &str) -> bool {
        match self {
            Self::All => true,
            Self::Tags(tags) => tags.contains(&tag) || !DEFERRABLE_TAGS.contains(&tag),
        }
    }
}

impl<B: Backend> Sleeper<B> {
    /// Puts all tags to sleep, with blocks of the `offload` tags copied to the host and others discarded.
    ///
    /// Sleeping tags are unchanged; a warning is logged if their contents were kept and would now be
    /// discarded, or the other way round. If all tags are asleep this has no effect, and the report says so.
    ///
    /// # Errors
    /// As [`SleepArena::sleep`](crate::SleepArena::sleep), and [`Error::UnknownTag`]. Every tag is then unchanged.
    pub fn sleep(&self, offload: &[&str]) -> Result<SleepReport, Error> {
        self.sleep_timeout(offload, Duration::ZERO)
    }

    /// As [`sleep`](Self::sleep), after a wait of at most `timeout` for regions of blocks to end.
    ///
    /// `sleep` fails while any thread has a region. Here new regions of a tag wait from the start of the wait for it on, so
    /// that they cannot put the sleep off. A thread that asks for another region while it has one may therefore wait until
    /// the timeout; the sleep then fails, and the thread goes on.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use vrampool::{Backend, host::HostDevice};
    /// # use vrampool_sleep::{Error, Sleeper};
    /// # fn main() -> Result<(), Error> {
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// # let stream = device.create_stream()?;
    /// let sleeper = Sleeper::new(&device)?;
    /// let weights = sleeper.allocate_tagged(1000, "weights", &stream)?;
    /// let region = weights.on(&stream)?;
    /// assert!(sleeper.sleep_timeout(&["weights"], Duration::from_millis(1)).is_err());
    /// drop(region);
    /// sleeper.sleep_timeout(&["weights"], Duration::from_millis(1))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`sleep`](Self::sleep), if regions still exist after `timeout`.
    pub fn sleep_timeout(&self, offload: &[&str], timeout: Duration) -> Result<SleepReport, Error> {
        let kept = self.shared.offload;
        let policy = |tag: &str| Some(if offload.contains(&tag) { kept } else { Offload::Discard });
        self.fall_asleep(offload, timeout, policy)
    }

    /// Puts only these tags to sleep, with their contents on the host; all others are unchanged.
    ///
    /// # Errors
    /// As [`sleep`](Self::sleep).
    pub fn sleep_tags(&self, tags: &[&str]) -> Result<SleepReport, Error> {
        let kept = self.shared.offload;
        self.fall_asleep(tags, Duration::ZERO, |tag| tags.contains(&tag).then_some(kept))
    }

    /// Sleeps at one of vLLM's levels. Level 0 has no effect.
    ///
    /// # Errors
    /// [`Error::UnknownLevel`] for another level; else as [`sleep`](Self::sleep).
    pub fn sleep_level(&self, level: u8) -> Result<SleepReport, Error> {
        match Level::of(level)?.offloaded {
            Some(offload) => self.sleep(offload),
            None => Ok(SleepReport::default()),
        }
    }

    /// Puts these tags to sleep and discards their contents. Sleeping tags are unchanged, including their
    /// backups; a warning is logged if they have any.
    ///
    /// # Errors
    /// As [`sleep`](Self::sleep).
    pub fn discard(&self, tags: &[&str]) -> Result<SleepReport, Error> {
        self.fall_asleep(tags, Duration::ZERO, |tag| tags.contains(&tag).then_some(Offload::Discard))
    }

    fn fall_asleep(
        &self,
        named: &[&str],
        timeout: Duration,
        policy: impl Fn(&str) -> Option<Offload>,
    ) -> Result<SleepReport, Error> {
        fork::check()?;
        progress::check()?;
        self.shared.check_tags(named)?;
        let _alone = self.shared.changing.lock();
        let arenas = self.shared.arenas();
        let chosen = arenas.iter().filter_map(|(tag, arena)| Some((&**tag, arena, policy(tag)?)));
        let slept = sleep_all(chosen, timeout, &|progress| self.shared.callbacks.tell(progress));
        self.shared.counts.lock().count_sleep(&slept);
        slept
    }

    /// Wakes tags. If all are awake this has no effect, and the report says so. If memory is insufficient,
    /// free memory of awake tags is released first.
    ///
    /// # Errors
    /// As [`SleepArena::wake`](crate::SleepArena::wake), and [`Error::UnknownTag`]. Every tag is then unchanged, and a later
    /// wake works.
    pub fn wake_up(&self, wake: Wake<'_>) -> Result<SleepReport, Error> {
        fork::check()?;
        progress::check()?;
        if let Wake::Tags(tags) = wake {
            self.shared.check_tags(tags)?;
        }
        let _alone = self.shared.changing.lock();
        let arenas = self.shared.arenas();
        let chosen = || arenas.iter().filter(|(tag, _)| wake.wakes(tag)).map(|(_, arena)| arena);
        let wake = || wake_all(chosen(), &|progress| self.shared.callbacks.tell(progress));
        let woken = match wake() {
            Err(error) if error.is_out_of_memory() && self.shared.relieve() > 0 => wake(),
            outcome => outcome,
        };
        self.shared.counts.lock().count_wake(&woken);
        woken.map_err(|error| match error {
            Error::Arena(error) => self.shared.explain(error).into(),
            error => error,
        })
    }
}
