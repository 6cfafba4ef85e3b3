//! Sleep and wake, over several tags: all of them or none.

use crate::boundary::Versioned;
use crate::failure::Failure;
use crate::pool::{CPool, Tagged, not_virtual};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool::any::AnyDevice;
use vrampool::arena::DeviceArena;
use vrampool::sleep::DEFERRABLE_TAGS;
use vrampool::sleep::Offload;

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
    const LEAST: usize = offset_of!(Self, was_so) + size_of::<u64>();

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
        let mut going: Vec<_> = self
            .tags()
            .into_iter()
            .filter(|tagged| !tagged.is_asleep())
            .filter_map(|tagged| policy(&tagged.tag).map(|offload| (tagged, offload)))
            .collect();
        // What cannot be taken back comes last, when what is likely to fail has not.
        going.sort_by_key(|(_, offload)| *offload == Offload::Discard);
        for (tagged, offload) in going {
            // First, so that what is idle is not handed out meanwhile.
            tagged.asleep.store(true, Ordering::Relaxed);
            tagged.trim();
            match arena(&tagged).and_then(|arena| Ok(arena.sleep(offload)?)) {
                Ok(did) => {
                    report.physical += did.freed_bytes;
                    report.contents += did.backed_up_bytes;
                    report.discarded += did.discarded_bytes;
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
                    report.physical += did.mapped_bytes;
                    report.contents += did.restored_bytes;
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

    fn wake_one(tagged: &Tagged) -> Result<vrampool::sleep::WakeReport, Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use vrampool::Backend;
    use vrampool::host::Call;

    #[test]
    fn a_sleep_that_fails_where_contents_are_kept_loses_none_at_all() {
        let options = Options::parse("device=host; host_capacity=64MiB; source=virtual").expect("good");
        let pool = CPool::new(0, options).expect("a pool");
        let AnyDevice::Host(device) = pool.home.device.clone() else { panic!("of the host") };
        let stream = pool.home.find(0).expect("the null stream");
        // By name the discarded one comes first.
        let mut blocks = ["discarded", "kept"].map(|tag| {
            let tagged = pool.tagged_or_new(tag).expect("a tag");
            (tag, tagged.pool.allocate(4 << 20, &stream).expect("memory"))
        });
        let policy = |tag: &str| Some(if tag == "kept" { Offload::Pinned } else { Offload::Discard });
        let mut failures = 0;
        // What only copies call. Without the first or the last of them there may be other ways.
        for call in [Call::Copy, Call::Download, Call::Allocate] {
            for (tag, buffer) in &mut blocks {
                buffer.write(tag.as_bytes(), &stream).expect("written");
            }
            pool.home.device.synchronize(&stream).expect("done");
            device.faults().fail_nth(call, 1);
            let slept = pool.fall_asleep(policy);
            device.faults().clear();
            failures += usize::from(slept.is_err());
            let intact = if slept.is_err() { &mut blocks[..] } else { &mut blocks[1..] };
            pool.wake(None).expect("awake");
            for (tag, buffer) in intact {
                let mut read = vec![0; tag.len()];
                buffer.read(&mut read, &stream).expect("awake");
                assert_eq!(read, tag.as_bytes(), "{call:?}");
            }
        }
        assert!(failures > 0, "nothing was tried");
    }
}
