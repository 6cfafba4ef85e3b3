//! Sleep and wake, over several tags: all of them or none.

use crate::boundary::versioned;
use crate::failure::{Failure, check_no_callback};
use crate::pool::{CPool, not_virtual};
use crate::tags::Tagged;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;
use vrampool_sleep::{Offload, SleepProgress, SleepReport as Done, Wake, check_tags, sleep_all, wake_all};

/// A `vrampool_copy_callback`: user, copied bytes, bytes in all.
pub type CopyCallback = extern "C" fn(*mut c_void, u64, u64);

/// A function that is called after each copied piece.
pub(crate) type OnProgress<'a> = &'a dyn Fn(SleepProgress);

/// Returns the progress hook of a callback of C, which may be absent.
pub(crate) fn progress_to(callback: Option<CopyCallback>, user: *mut c_void) -> impl Fn(SleepProgress) {
    move |progress| {
        if let Some(callback) = callback {
            callback(user, progress.copied_bytes, progress.total_bytes);
        }
    }
}

versioned! {
    /// `vrampool_sleep_report`; its fields are the header's.
    #[allow(missing_docs, reason = "the header has them")]
    SleepReport until no_op { physical_bytes copied_bytes discarded_bytes no_op nanoseconds }
}

impl From<Done> for SleepReport {
    fn from(done: Done) -> Self {
        Self {
            struct_size: 0,
            physical_bytes: done.physical_bytes,
            copied_bytes: done.copied_bytes,
            discarded_bytes: done.discarded_bytes,
            no_op: done.no_op.into(),
            nanoseconds: u64::try_from(done.elapsed.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

impl CPool {
    /// Puts the tags that the policy names to sleep.
    pub(crate) fn fall_asleep(
        &self,
        named: &[&str],
        policy: impl Fn(&str) -> Option<Offload>,
        on_progress: OnProgress<'_>,
    ) -> Result<Done, Failure> {
        check_no_callback()?;
        let _alone = self.changing.lock();
        self.check(named)?;
        self.captures.reclaim(&self.home);
        let chosen = |tagged: Arc<Tagged>| policy(&tagged.tag).map(|offload| (tagged, offload));
        let chosen: Vec<_> = self.tags_and_graphs().into_iter().filter_map(chosen).collect();
        let arenas = chosen.iter().filter_map(|(of, offload)| Some((of.arena.as_ref()?, *offload)));
        let slept = sleep_all(arenas, Duration::ZERO, on_progress);
        self.sleep_counts.lock().count_sleep(&slept);
        Ok(slept?)
    }

    /// Wakes the named tags, and all others than `weights` and `kv_cache`.
    pub(crate) fn wake(&self, tags: Option<&[&str]>, on_progress: OnProgress<'_>) -> Result<Done, Failure> {
        check_no_callback()?;
        let _alone = self.changing.lock();
        self.check(tags.unwrap_or_default())?;
        let chosen = tags.map_or(Wake::All, Wake::Tags);
        let mut named = self.tags_and_graphs();
        named.retain(|tagged| chosen.wakes(&tagged.tag));
        let wake = || wake_all(named.iter().filter_map(|tagged| tagged.arena.as_ref()), on_progress);
        let woken = match wake() {
            Err(error) if error.is_out_of_memory() => {
                // What it releases of arenas it does not count.
                self.trim(0);
                wake()
            }
            outcome => outcome,
        };
        self.sleep_counts.lock().count_wake(&woken);
        Ok(woken?)
    }

    /// Checks that memory can sleep, and that these tags exist.
    fn check(&self, named: &[&str]) -> Result<(), Failure> {
        self.main.arena.as_ref().ok_or_else(not_virtual)?;
        self.check_tags(named)
    }

    /// Checks that these tags exist.
    pub(crate) fn check_tags(&self, named: &[&str]) -> Result<(), Failure> {
        let used = self.tags();
        Ok(check_tags(named, used.iter().map(|tagged| &*tagged.tag))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::sleeping::Sleeping;
    use vrampool::any::AnyDevice;
    use vrampool::host::Call;
    use vrampool::telemetry::Owner;
    use vrampool::{Backend, Pool};

    /// The device refuses, and then refuses the way back: what is asleep then is said to be, and wakes.
    #[test]
    fn a_tag_that_could_not_be_taken_back_is_asleep_and_wakes() {
        let options = Options::parse("device=host; host_capacity=64MiB; source=virtual").expect("good");
        let pool = CPool::new(0, options).expect("a pool");
        let AnyDevice::Host(device) = pool.home.device.clone() else { panic!("of the host") };
        let stream = pool.home.find(0).expect("the null stream");
        let tagged = pool.tagged_or_new("kept").expect("a tag");
        let mut blocks: Vec<_> =
            [4, 8, 2].map(|mib| tagged.pool.allocate(mib << 20, &stream).expect("memory")).into();
        // A hole between mappings.
        drop(blocks.remove(1));
        tagged.trim_to(0);
        blocks.iter_mut().for_each(|block| block.write(b"kept", &stream).expect("written"));
        let mut stayed = 0;
        for nth in 1..4 {
            device.faults().fail_nth(Call::Unmap, nth);
            device.faults().fail_nth(Call::Map, 1);
            let slept = pool.fall_asleep(&[], |_| Some(Offload::Discard), &|_| ());
            device.faults().clear();
            let is_asleep = tagged.is_asleep();
            stayed += u64::from(slept.is_err() && is_asleep);
            let _ = pool.wake(None, &|_| ()).expect("awake");
            if slept.is_err() {
                for block in &blocks {
                    let mut read = [0; 4];
                    block.read(&mut read, &stream).expect("awake");
                    assert_eq!(&read, b"kept");
                }
            }
            blocks.iter_mut().for_each(|block| block.write(b"kept", &stream).expect("written"));
        }
        assert!(stayed > 0, "nothing was tried");
    }

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
            let slept = pool.fall_asleep(&[], policy, &|_| ());
            device.faults().clear();
            failures += usize::from(slept.is_err());
            let intact = if slept.is_err() { &mut blocks[..] } else { &mut blocks[1..] };
            let _ = pool.wake(None, &|_| ()).expect("awake");
            for (tag, buffer) in intact {
                let mut read = vec![0; tag.len()];
                buffer.read(&mut read, &stream).expect("awake");
                assert_eq!(read, tag.as_bytes(), "{call:?}");
            }
        }
        assert!(failures > 0, "nothing was tried");
    }

    /// What is asleep takes none of the limit, and free memory of other tags makes room for a wake.
    #[test]
    fn the_limit_is_of_awake_memory() {
        let options = "device=host; host_capacity=128MiB; source=virtual; limit=32MiB";
        let pool = CPool::new(0, Options::parse(options).expect("good")).expect("a pool");
        let stream = pool.home.find(0).expect("the null stream");
        let [one, other] = ["one", "other"].map(|tag| pool.tagged_or_new(tag).expect("a tag"));
        let _asleep = one.pool.allocate(20 << 20, &stream).expect("memory");
        let _ = pool.fall_asleep(&["one"], |tag| (tag == "one").then_some(Offload::Pinned), &|_| ());
        let awake = other.pool.allocate(20 << 20, &stream).expect("memory");
        assert!(pool.wake(None, &|_| ()).is_err(), "both are more than the limit");
        drop(awake);
        let _ = pool.wake(None, &|_| ()).expect("awake");
        assert!(other.pool.allocate(20 << 20, &stream).is_err());
    }

    /// A pool that cannot sleep has none of these metrics.
    #[test]
    fn sleeps_and_wakes_of_a_pool_are_metrics() {
        let served = |source: &str| {
            let options = format!("device=host; host_capacity=64MiB; name=slept; source={source}");
            let pool = CPool::new(0, Options::parse(&options).expect("good")).expect("a pool");
            Sleeping::of(Arc::new(pool))
        };
        assert!(served("direct").is_none());
        let sleeping = served("virtual").expect("it can sleep");
        let pool = sleeping.pool();
        let stream = pool.home.find(0).expect("the null stream");
        let tagged = pool.tagged_or_new("weights").expect("a tag");
        let kept = tagged.pool.allocate(32 << 20, &stream).expect("memory");
        let _ = pool.fall_asleep(&[], |_| Some(Offload::Pinned), &|_| ()).expect("asleep");
        let taken = Pool::new(&pool.home.device).expect("a pool");
        let taken = taken.allocate(48 << 20, &stream).expect("memory");
        assert!(pool.wake(None, &|_| ()).is_err(), "the memory is taken");
        drop(taken);
        let counts = *pool.sleep_counts.lock();
        assert_eq!((counts.sleeps, counts.wakes, counts.failed_wakes), (1, 0, 1));
        assert_eq!(Owner::name(&sleeping), "slept");
        let figures = format!("{:?}", sleeping.figures());
        assert!(figures.contains("vrampool_sleep_tag_asleep") && figures.contains("weights"), "{figures}");
        drop(kept);
    }
}
