//! Tags on a device of their own.

use crate::{discrete, integrated, pattern};
use vrampool::host::{Backend, HostDevice, HostStream};
use vrampool_sleep::{Offload, SleepBuffer, SleepState, Sleeper, SleeperBuilder, Wake};

pub(crate) type Block = SleepBuffer<HostDevice>;

pub(crate) struct Tags {
    pub(crate) device: HostDevice,
    pub(crate) stream: HostStream,
    pub(crate) sleeper: Sleeper<HostDevice>,
}

impl Tags {
    pub(crate) fn with(
        device: HostDevice,
        build: impl FnOnce(SleeperBuilder<HostDevice>) -> SleeperBuilder<HostDevice>,
    ) -> Self {
        let sleeper = build(Sleeper::builder(&device)).build().expect("a sleeper");
        let stream = device.create_stream().expect("a stream");
        Self { device, stream, sleeper }
    }

    pub(crate) fn filled(&self, tag: &str, bytes: u64, seed: u64) -> Block {
        let mut block = self.sleeper.allocate_tagged(bytes, tag, &self.stream).expect("memory");
        block.write(&pattern(seed, bytes), &self.stream).expect("awake");
        block
    }

    pub(crate) fn holds(&self, block: &Block, seed: u64) -> bool {
        let mut bytes = vec![0; block.len() as usize];
        block.read(&mut bytes, &self.stream).expect("awake");
        bytes == pattern(seed, block.len())
    }

    pub(crate) fn free(&self) -> u64 {
        self.device.memory_info().expect("known").free_bytes
    }

    /// Waits until work is complete and backups are released.
    pub(crate) fn finish(&self) {
        self.device.synchronize(&self.stream).expect("no fault");
        while self.sleeper.tags().iter().any(|tag| {
            self.sleeper.state_of(tag).expect("it exists") == SleepState::Awake
                && self.sleeper.usage_of(tag).expect("it exists").backup_bytes > 0
        }) {
            std::thread::yield_now();
        }
    }
}

/// On each kind of device.
pub(crate) fn on_each(test: impl Fn(&Tags)) {
    for device in [integrated(), discrete()] {
        let tags = Tags::with(device, |builder| builder.offload(Offload::Pageable));
        let before = tags.free();
        test(&tags);
        let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
        let _ = tags.sleeper.trim().expect("no fault");
        tags.finish();
        assert_eq!((tags.free(), tags.device.races()), (before, 0), "everything went back");
    }
}
