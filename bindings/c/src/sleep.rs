//! Sleep and wake, over several tags: all of them or none.

use crate::boundary::Versioned;
use crate::failure::Failure;
use crate::pool::{CPool, Tagged, not_virtual};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool::any::AnyDevice;
use vrampool::sleep::DEFERRABLE_TAGS;
use vrampool::{DeviceArena, Offload};

/// `vrampool_sleep_report`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SleepReport {
    /// As in C: what of it the caller knows.
    pub struct_size: usize,
    /// Bytes given back to the device, or taken from it.
    pub physical: u64,
    /// Bytes of blocks copied to the host, or back.
    pub contents: u64,
    /// Bytes of blocks whose contents are gone.
    pub discarded: u64,
    /// 1 when there was nothing to do.
    pub was_so: u64,
}

impl Versioned for SleepReport {
    const LEAST: usize = size_of::<Self>();

    fn with_size(self, struct_size: usize) -> Self {
        Self { struct_size, ..self }
    }
}

fn arena(tagged: &Tagged) -> Result<&DeviceArena<AnyDevice>, Failure> {
    tagged.pool.arena().filter(|arena| arena.is_growing()).ok_or_else(not_virtual)
}

impl CPool {
    /// Puts the tags that the policy names to sleep.
    pub(crate) fn fall_asleep(
        &self,
        policy: impl Fn(&str) -> Option<Offload>,
    ) -> Result<SleepReport, Failure> {
        let _alone = self.changing.lock();
        arena(&self.main)?;
        self.captures.settle(&self.home);
        let (mut asleep, mut report): (Vec<Arc<Tagged>>, _) = (Vec::new(), SleepReport::default());
        for tagged in self.tags() {
            let Some(offload) = policy(&tagged.tag).filter(|_| !tagged.is_asleep()) else { continue };
            // First, so that what is idle is not handed out meanwhile.
            tagged.asleep.store(true, Ordering::Relaxed);
            tagged.pool.trim();
            match arena(&tagged).and_then(|arena| Ok(arena.sleep(offload)?)) {
                Ok(did) => {
                    report.physical += did.freed;
                    report.contents += did.backed_up;
                    report.discarded += did.discarded;
                    *tagged.offload.lock() = offload;
                    asleep.push(tagged);
                }
                Err(failure) => {
                    tagged.asleep.store(false, Ordering::Relaxed);
                    asleep.iter().for_each(|tagged| take_back(tagged, Self::wake_one(tagged).map(drop)));
                    return Err(failure);
                }
            }
        }
        report.was_so = u64::from(asleep.is_empty());
        Ok(report)
    }

    /// Wakes the tags that are named, and all that nobody names.
    pub(crate) fn wake(&self, tags: Option<&[&str]>) -> Result<SleepReport, Failure> {
        let _alone = self.changing.lock();
        arena(&self.main)?;
        let wakes = |tag: &str| match tags {
            None => true,
            Some(tags) => tags.contains(&tag) || !DEFERRABLE_TAGS.contains(&tag),
        };
        let asleep: Vec<_> =
            self.tags().into_iter().filter(|tagged| tagged.is_asleep() && wakes(&tagged.tag)).collect();
        match Self::wake_all(&asleep) {
            Err(_) if self.trim(0) > 0 => Self::wake_all(&asleep),
            outcome => outcome,
        }
    }

    fn wake_all(asleep: &[Arc<Tagged>]) -> Result<SleepReport, Failure> {
        let mut report = SleepReport { was_so: u64::from(asleep.is_empty()), ..SleepReport::default() };
        for (woken, tagged) in asleep.iter().enumerate() {
            match Self::wake_one(tagged) {
                Ok(did) => {
                    report.physical += did.mapped;
                    report.contents += did.restored;
                }
                Err(failure) => {
                    asleep[..woken].iter().for_each(|tagged| {
                        tagged.asleep.store(true, Ordering::Relaxed);
                        let slept = arena(tagged).and_then(|arena| Ok(arena.sleep(*tagged.offload.lock())?));
                        if slept.is_err() {
                            tagged.asleep.store(false, Ordering::Relaxed);
                        }
                        take_back(tagged, slept.map(drop));
                    });
                    return Err(failure);
                }
            }
        }
        Ok(report)
    }

    fn wake_one(tagged: &Tagged) -> Result<vrampool::WakeReport, Failure> {
        let report = arena(tagged)?.wake()?;
        tagged.asleep.store(false, Ordering::Relaxed);
        Ok(report)
    }
}

/// What fails on the way back stays as it became, with all contents.
fn take_back(tagged: &Tagged, outcome: Result<(), Failure>) {
    if let Err(failure) = outcome {
        log::error!("tag {}: it could not be taken back: {}", tagged.tag, failure.text);
    }
}
