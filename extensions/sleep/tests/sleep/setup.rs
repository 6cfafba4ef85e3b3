//! Tags on a device of their own: children of a pool over virtual memory, whose arenas sleep.

use crate::{discrete, integrated, pattern};
use std::time::Duration;
use vrampool::arena::Attachment;
use vrampool::host::{Backend, HostDevice, HostStream};
use vrampool::{Buffer, Pool, PoolBuilder, Source};
use vrampool_sleep::{Error, Offload, SleepArena, SleepProgress, SleepReport, sleep_all, wake_all};

pub(crate) type Block = Buffer<HostDevice>;

pub(crate) struct Tag {
    pub(crate) name: &'static str,
    pub(crate) pool: Pool<HostDevice>,
    pub(crate) arena: SleepArena<HostDevice>,
}

impl Tag {
    pub(crate) fn is_awake(&self) -> bool {
        self.arena.arena().attachment() == Attachment::Attached
    }
}

pub(crate) struct Tags {
    pub(crate) device: HostDevice,
    pub(crate) stream: HostStream,
    pub(crate) pool: Pool<HostDevice>,
    pub(crate) all: Vec<Tag>,
    /// Where contents are kept.
    pub(crate) offload: Offload,
}

impl Tags {
    pub(crate) fn new(device: HostDevice, names: &[&'static str], offload: Offload) -> Self {
        Self::with(device, names, offload, |builder| builder)
    }

    pub(crate) fn with(
        device: HostDevice,
        names: &[&'static str],
        offload: Offload,
        build: impl FnOnce(PoolBuilder<HostDevice>) -> PoolBuilder<HostDevice>,
    ) -> Self {
        let builder = Pool::builder(&device).source(Source::Virtual).addresses_stay(true);
        let pool = build(builder).build().expect("a pool");
        let tag = |&name: &&'static str| {
            let pool = pool.child(name).build().expect("a pool");
            let arena = SleepArena::new(pool.arena().expect("virtual").clone());
            Tag { name, pool, arena }
        };
        let (all, stream) = (names.iter().map(tag).collect(), device.create_stream().expect("a stream"));
        Self { device, stream, pool, all, offload }
    }

    pub(crate) fn of(&self, name: &str) -> &Tag {
        self.all.iter().find(|tag| tag.name == name).expect("it exists")
    }

    pub(crate) fn filled(&self, tag: &str, bytes: u64, seed: u64) -> Block {
        let mut block = self.of(tag).pool.allocate(bytes, &self.stream).expect("memory");
        block.write(&pattern(seed, bytes), &self.stream).expect("awake");
        block
    }

    pub(crate) fn holds(&self, block: &Block, seed: u64) -> bool {
        let mut bytes = vec![0; block.len() as usize];
        block.read(&mut bytes, &self.stream).expect("awake");
        bytes == pattern(seed, block.len())
    }

    /// Puts the tags that the policy names to sleep.
    pub(crate) fn sleep_with(
        &self,
        policy: impl Fn(&str) -> Option<Offload>,
        timeout: Duration,
        on_progress: &dyn Fn(SleepProgress),
    ) -> Result<SleepReport, Error> {
        let arenas = self.all.iter().filter_map(|tag| Some((&tag.arena, policy(tag.name)?)));
        sleep_all(arenas, timeout, on_progress)
    }

    /// Puts all tags to sleep. Contents of others than the `kept` ones are discarded.
    pub(crate) fn sleep(&self, kept: &[&str]) -> Result<SleepReport, Error> {
        let policy = |tag: &str| Some(if kept.contains(&tag) { self.offload } else { Offload::Discard });
        self.sleep_with(policy, Duration::ZERO, &|_| ())
    }

    pub(crate) fn discard(&self, tags: &[&str]) -> Result<SleepReport, Error> {
        self.sleep_with(|tag| tags.contains(&tag).then_some(Offload::Discard), Duration::ZERO, &|_| ())
    }

    /// Wakes these tags, if memory is short without idle memory of others.
    pub(crate) fn wake(&self, tags: &[&str]) -> Result<SleepReport, Error> {
        let wake = || {
            let chosen = self.all.iter().filter(|tag| tags.contains(&tag.name));
            wake_all(chosen.map(|tag| &tag.arena), &|_| ())
        };
        match wake() {
            Err(error) if error.is_out_of_memory() => {
                let _ = self.pool.trim()?;
                wake()
            }
            outcome => outcome,
        }
    }

    pub(crate) fn wake_up(&self) -> Result<SleepReport, Error> {
        self.wake(&self.all.iter().map(|tag| tag.name).collect::<Vec<_>>())
    }

    pub(crate) fn free(&self) -> u64 {
        self.device.memory_info().expect("known").free_bytes
    }

    /// Waits until work is complete and backups are released.
    pub(crate) fn finish(&self) {
        self.device.synchronize(&self.stream).expect("no fault");
        while self.all.iter().any(|tag| tag.is_awake() && tag.arena.backup_bytes() > 0) {
            std::thread::yield_now();
        }
    }
}

/// On each kind of device.
pub(crate) fn on_each(names: &[&'static str], test: impl Fn(&Tags)) {
    for device in [integrated(), discrete()] {
        let tags = Tags::new(device, names, Offload::Pageable);
        let before = tags.free();
        test(&tags);
        let _ = tags.wake_up().expect("memory");
        let _ = tags.pool.trim().expect("no fault");
        tags.finish();
        assert_eq!((tags.free(), tags.device.races()), (before, 0), "everything went back");
    }
}
