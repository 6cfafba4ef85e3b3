//! Sleep, discard and wake of several tags, each all or nothing.

use super::group::Group;
use super::sleeper::Sleeper;
use super::tag::DEFERRABLE_TAGS;
use super::{Level, Offload, SleepReport, WakeReport};
use crate::error::Error;
use std::sync::Arc;
use vrampool_backend::{Backend, fork};

/// The tags to wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake<'a> {
    /// Everything.
    All,
    /// These tags, and all that are not [deferrable](super::DEFERRABLE_TAGS): what is internal to a program
    /// wakes whatever of it does.
    Tags(&'a [&'a str]),
}

impl Wake<'_> {
    fn wakes(&self, tag: &str) -> bool {
        match self {
            Self::All => true,
            Self::Tags(tags) => tags.contains(&tag) || !DEFERRABLE_TAGS.contains(&tag),
        }
    }
}

impl<B: Backend> Sleeper<B> {
    /// Puts everything to sleep: blocks of the `offload` tags are copied to the host, the contents of all
    /// others go. Tags that sleep already stay as they are; a warning is logged where they would be kept now
    /// and were not, or the other way round. To sleep when everything is asleep does nothing, and says so.
    ///
    /// # Errors
    /// As [`DeviceArena::sleep`](crate::arena::DeviceArena::sleep); every tag is as it was then.
    pub fn sleep(&self, offload: &[&str]) -> Result<SleepReport, Error> {
        let kept = self.core.offload;
        self.fall_asleep(|tag| Some(if offload.contains(&tag) { kept } else { Offload::Discard }))
    }

    /// Puts these tags alone to sleep, with their contents on the host; all others stay as they are.
    ///
    /// # Errors
    /// As [`sleep`](Self::sleep).
    pub fn sleep_tags(&self, tags: &[&str]) -> Result<SleepReport, Error> {
        let kept = self.core.offload;
        self.fall_asleep(|tag| tags.contains(&tag).then_some(kept))
    }

    /// Sleeps at one of vLLM's [levels](Level::ALL): 0 does nothing, 1 keeps weights, runtime and graphs, 2
    /// runtime and graphs.
    ///
    /// # Errors
    /// [`Error::Configuration`] for another level; else as [`sleep`](Self::sleep).
    pub fn sleep_level(&self, level: u8) -> Result<SleepReport, Error> {
        match Level::of(level)?.offloaded {
            Some(offload) => self.sleep(offload),
            None => Ok(SleepReport::default()),
        }
    }

    /// Puts these tags to sleep, and lets their contents go. Those that sleep already stay as they are, with
    /// their backups; a warning is logged where they have any.
    ///
    /// # Errors
    /// As [`sleep`](Self::sleep).
    pub fn discard(&self, tags: &[&str]) -> Result<SleepReport, Error> {
        self.fall_asleep(|tag| tags.contains(&tag).then_some(Offload::Discard))
    }

    fn fall_asleep(&self, policy: impl Fn(&str) -> Option<Offload>) -> Result<SleepReport, Error> {
        fork::check()?;
        let _alone = self.core.changing.lock();
        let groups = self.core.groups();
        // All that fell so far wake when one fails: nothing is given back before all have.
        let (mut falling, mut report) = (Vec::new(), SleepReport::default());
        for (tag, group) in &groups {
            let Some(offload) = policy(tag) else { continue };
            match group.begin_sleep(offload)? {
                Some(group) => falling.push(group),
                None => {
                    report.was_asleep = true;
                    self.warn_of_another_policy(tag, group, offload);
                }
            }
        }
        report.was_asleep &= falling.is_empty();
        for group in falling {
            let SleepReport { freed, backed_up, discarded, .. } = group.commit();
            report.freed += freed;
            report.backed_up += backed_up;
            report.discarded += discarded;
        }
        let SleepReport { freed, backed_up, discarded, .. } = report;
        log::info!("asleep: {freed} bytes given back, {backed_up} on the host, {discarded} discarded");
        Ok(report)
    }

    fn warn_of_another_policy(&self, tag: &Arc<str>, group: &Group<B>, offload: Offload) {
        let was_discarded = group.offload().is_some_and(|before| before == Offload::Discard);
        if was_discarded != (offload == Offload::Discard) {
            let is = if was_discarded { "discarded" } else { "on the host" };
            log::warn!("tag {tag} is asleep already, its contents {is}; that stays so");
        }
    }

    /// Wakes tags. To wake when everything is awake does nothing, and says so. Where memory is short, free
    /// memory of tags that are awake is given back first.
    ///
    /// # Errors
    /// As [`DeviceArena::wake`](crate::arena::DeviceArena::wake); every tag is as it was then, and a later wake
    /// works.
    pub fn wake_up(&self, wake: Wake<'_>) -> Result<WakeReport, Error> {
        fork::check()?;
        let _alone = self.core.changing.lock();
        let groups = self.core.groups();
        let woken: Vec<_> =
            groups.iter().filter(|(tag, _)| wake.wakes(tag)).map(|(_, group)| group).collect();
        match Self::wake_groups(&woken) {
            Err(error) if error.is_out_of_memory() && self.core.relieve() > 0 => Self::wake_groups(&woken),
            outcome => outcome,
        }
    }

    fn wake_groups(groups: &[&Group<B>]) -> Result<WakeReport, Error> {
        // All that woke so far sleep again when one fails: no backup is given back before all have.
        let (mut waking, mut report) = (Vec::new(), WakeReport::default());
        for group in groups {
            waking.extend(group.begin_wake()?);
        }
        report.was_awake = waking.is_empty();
        for group in waking {
            let WakeReport { mapped, restored, .. } = group.commit();
            report.mapped += mapped;
            report.restored += restored;
        }
        log::info!("awake: {} bytes taken, {} restored", report.mapped, report.restored);
        Ok(report)
    }
}
