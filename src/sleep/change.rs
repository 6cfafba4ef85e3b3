//! Sleep, discard and wake of several tags, each all or nothing.

use super::group::Group;
use super::sleeper::Sleeper;
use super::tag::DEFERRABLE_TAGS;
use super::{Level, Offload, SleepReport, WakeReport};
use crate::error::Error;
use std::sync::Arc;
use vrampool_backend::{Backend, fork, logging};

/// The tags to wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake<'a> {
    /// All tags.
    All,
    /// These tags, and all that are not [deferrable](super::DEFERRABLE_TAGS), because internal memory of a
    /// program wakes with any part of it.
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
    /// Puts all tags to sleep, with blocks of the `offload` tags copied to the host and others discarded.
    ///
    /// Sleeping tags are unchanged; a warning is logged if their contents were kept and would now be
    /// discarded, or the other way round. If all tags are asleep this has no effect, and the report says so.
    ///
    /// # Errors
    /// As [`DeviceArena::sleep`](crate::arena::DeviceArena::sleep). Every tag is then unchanged.
    pub fn sleep(&self, offload: &[&str]) -> Result<SleepReport, Error> {
        let kept = self.core.offload;
        self.fall_asleep(|tag| Some(if offload.contains(&tag) { kept } else { Offload::Discard }))
    }

    /// Puts only these tags to sleep, with their contents on the host; all others are unchanged.
    ///
    /// # Errors
    /// As [`sleep`](Self::sleep).
    pub fn sleep_tags(&self, tags: &[&str]) -> Result<SleepReport, Error> {
        let kept = self.core.offload;
        self.fall_asleep(|tag| tags.contains(&tag).then_some(kept))
    }

    /// Sleeps at one of vLLM's levels. Level 0 has no effect.
    ///
    /// # Errors
    /// [`Error::Configuration`] for another level; else as [`sleep`](Self::sleep).
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
        self.fall_asleep(|tag| tags.contains(&tag).then_some(Offload::Discard))
    }

    fn fall_asleep(&self, policy: impl Fn(&str) -> Option<Offload>) -> Result<SleepReport, Error> {
        fork::check()?;
        let _alone = self.core.changing.lock();
        let groups = self.core.groups();
        // If one group fails, all previous ones wake again: no memory is released before all are ready.
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
            let SleepReport {
                freed_bytes: freed,
                backed_up_bytes: backed_up,
                discarded_bytes: discarded,
                ..
            } = group.commit();
            report.freed_bytes += freed;
            report.backed_up_bytes += backed_up;
            report.discarded_bytes += discarded;
        }
        let SleepReport {
            freed_bytes: freed, backed_up_bytes: backed_up, discarded_bytes: discarded, ..
        } = report;
        logging::info!("asleep: {freed} bytes given back, {backed_up} on the host, {discarded} discarded");
        Ok(report)
    }

    fn warn_of_another_policy(&self, tag: &Arc<str>, group: &Group<B>, offload: Offload) {
        let was_discarded = group.offload().is_some_and(|before| before == Offload::Discard);
        if was_discarded != (offload == Offload::Discard) {
            let is = if was_discarded { "discarded" } else { "on the host" };
            logging::warn!("tag {tag} is asleep already, its contents {is}; that stays so");
        }
    }

    /// Wakes tags. If all are awake this has no effect, and the report says so. If memory is insufficient,
    /// free memory of awake tags is released first.
    ///
    /// # Errors
    /// As [`DeviceArena::wake`](crate::arena::DeviceArena::wake). Every tag is then unchanged, and a later wake
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
        .map_err(|error| self.core.explain(error))
    }

    fn wake_groups(groups: &[&Group<B>]) -> Result<WakeReport, Error> {
        // If one group fails, all previous ones sleep again: no backup is released before all are ready.
        let (mut waking, mut report) = (Vec::new(), WakeReport::default());
        for group in groups {
            waking.extend(group.begin_wake()?);
        }
        report.was_awake = waking.is_empty();
        for group in waking {
            let WakeReport { mapped_bytes: mapped, restored_bytes: restored, .. } = group.commit();
            report.mapped_bytes += mapped;
            report.restored_bytes += restored;
        }
        logging::info!("awake: {} bytes taken, {} restored", report.mapped_bytes, report.restored_bytes);
        Ok(report)
    }
}
