//! Memory that sleeps and wakes: contents, addresses, what the device has meanwhile, and every call that can
//! fail.
#![cfg(target_os = "linux")]

mod arena;
mod callbacks;
mod copies;
mod failing_waits;
mod faults;
mod model;
mod panics;
mod setup;
mod tags;
mod threads;

use vrampool::arena::{ArenaBuffer, ArenaBuilder, ArenaError, DeviceArena};
use vrampool::host::{Backend, DeviceKind, HostDevice, HostStream};
use vrampool_sleep::SleepArena;
use vrampool_test_support::pattern;

const MIB: u64 = 1 << 20;

/// An arena on a device of its own.
#[derive(Debug)]
struct Setup {
    device: HostDevice,
    stream: HostStream,
    arena: DeviceArena<HostDevice>,
    sleep: SleepArena<HostDevice>,
}

/// A device with memory of its own, whose pinned memory counts like its own.
fn discrete() -> HostDevice {
    HostDevice::builder().memory_limit(1 << 30).kind(DeviceKind::Discrete).build()
}

/// A device that shares the host's memory, of whose bytes no backup is a part.
fn integrated() -> HostDevice {
    HostDevice::builder().memory_limit(1 << 30).build()
}

impl Setup {
    fn new(device: HostDevice) -> Self {
        Self::with(device, |builder| builder)
    }

    fn with(
        device: HostDevice,
        build: impl FnOnce(ArenaBuilder<HostDevice>) -> ArenaBuilder<HostDevice>,
    ) -> Self {
        let stream = device.create_stream().expect("a stream");
        let arena = build(DeviceArena::builder(&device).growing()).build().expect("an arena");
        let sleep = SleepArena::new(arena.clone());
        Self { device, stream, arena, sleep }
    }

    fn filled(&self, bytes: u64, seed: u64) -> ArenaBuffer<HostDevice> {
        let mut buffer = self.arena.allocate(bytes, &self.stream).expect("memory");
        buffer.write(&pattern(seed, bytes), &self.stream).expect("queued");
        buffer
    }

    fn holds(&self, buffer: &ArenaBuffer<HostDevice>, seed: u64) -> bool {
        let mut bytes = vec![0; buffer.len() as usize];
        buffer.read(&mut bytes, &self.stream).expect("awake");
        bytes == pattern(seed, buffer.len())
    }

    fn free(&self) -> u64 {
        self.device.memory_info().expect("known").free_bytes
    }

    fn filled_up(&self) -> Vec<(u64, ArenaBuffer<HostDevice>)> {
        filled_up(MIB, |bytes, seed| self.filled(bytes, seed))
    }

    fn all_hold(&self, blocks: &[(u64, ArenaBuffer<HostDevice>)]) -> bool {
        blocks.iter().all(|(seed, buffer)| self.holds(buffer, *seed))
    }
}

/// Live blocks of many sizes with holes between them, and stitched ones; each with its seed.
fn filled_up<T>(unit: u64, filled: impl Fn(u64, u64) -> T) -> Vec<(u64, T)> {
    let sizes = [5 * unit, 100, 3 * unit, 17 * unit, 4096, 6 * unit, 300, 2 * unit, 9 * unit];
    let mut blocks: Vec<_> = (0..).zip(sizes).map(|(seed, bytes)| (seed, filled(bytes, seed))).collect();
    // Holes of 5, 6 and 9 units, of which two make room for one.
    for place in [8, 5, 0] {
        drop(blocks.remove(place));
    }
    for (seed, bytes) in [(20, 10 * unit), (21, 7 * unit)] {
        blocks.push((seed, filled(bytes, seed)));
    }
    blocks
}

/// The address of a buffer's bytes on the device.
fn address(buffer: &ArenaBuffer<HostDevice>) -> u64 {
    buffer.address().expect("the host has addresses")
}

/// Whether a region of a block kept memory awake.
fn is_pinned(error: &vrampool_sleep::Error) -> bool {
    matches!(error.of_arena().and_then(vrampool::Error::arena), Some(ArenaError::Pinned))
}

/// Waits until backups are released.
fn finish(sleep: &SleepArena<HostDevice>) {
    while sleep.backup_bytes() > 0 {
        std::thread::yield_now();
    }
}
