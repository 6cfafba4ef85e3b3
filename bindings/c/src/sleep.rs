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
    use vrampool::Pool;
    use vrampool::telemetry::Owner;

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
