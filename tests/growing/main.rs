//! Growing arenas: nothing is lost or spoilt, the books are the device's, and no physical byte is there
//! without need. Linux alone has virtual memory of the host.
#![cfg(target_os = "linux")]

mod bounds;
mod captured_streams;
#[path = "../detached/mod.rs"]
mod detached;
mod detaching;
mod done;
mod faults;
mod freed_blocks;
mod initial;
mod law;
mod limits;
mod own_places;
mod pool;
mod raised_limits;
mod repeated;
mod shared;
mod shared_growth;
mod shared_law;
mod shared_threads;
mod streams;

use vrampool::arena::SpanState;
use vrampool::arena::{ArenaBuffer, ArenaBuilder, DeviceArena};
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Error, Memory};
use vrampool_test_support::{AuditDevice, pattern};

type Device = AuditDevice<HostDevice>;

/// The granularity of the devices here: so that histories are short.
const PAGE: u64 = 4096;

/// An arena that grows, on a device of its own.
struct Scene {
    device: Device,
    arena: DeviceArena<Device>,
    streams: [HostStream; 3],
}

/// A block with what was written to it, and where it is.
struct Live {
    buffer: ArenaBuffer<Device>,
    seed: u64,
    address: u64,
}

/// A device with streams.
fn host<const STREAMS: usize>() -> (HostDevice, [HostStream; STREAMS]) {
    let device = HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build();
    let streams = std::array::from_fn(|_| device.create_stream().expect("a stream"));
    (device, streams)
}

fn scene(build: impl FnOnce(ArenaBuilder<Device>) -> ArenaBuilder<Device>) -> Scene {
    let (device, streams) = host();
    let device = AuditDevice::new(device);
    let arena = build(DeviceArena::builder(&device).growing()).build().expect("an arena");
    Scene { device, arena, streams }
}

impl Scene {
    /// Physical bytes that are taken, by the device's own account.
    fn taken(&self) -> u64 {
        let info = self.device.memory_info().expect("no fault");
        info.total_bytes - info.free_bytes
    }

    fn live(&self, bytes: u64, stream: usize, seed: u64) -> Result<Live, Error> {
        let buffer = self.arena.allocate(bytes, &self.streams[stream])?;
        let mut live = Live { buffer, seed, address: 0 };
        self.write(&mut live, stream, seed);
        Ok(live)
    }

    fn write(&self, live: &mut Live, stream: usize, seed: u64) {
        live.buffer.write(&pattern(seed, live.buffer.len()), &self.streams[stream]).expect("no fault");
        (live.seed, live.address) = (seed, live.address());
    }

    /// Whether it has what was written to it, and is where it was.
    fn check(&self, live: &Live, stream: usize) {
        assert_eq!(live.address(), live.address, "it never moves");
        let mut bytes = vec![0; live.buffer.len() as usize];
        live.buffer.read(&mut bytes, &self.streams[stream]).expect("no fault");
        assert!(bytes == pattern(live.seed, live.buffer.len()), "what was written was spoilt");
    }

    /// Whether the arena and the device say the same.
    fn check_books<'a>(&self, live: impl IntoIterator<Item = &'a Live>) {
        assert_eq!(self.taken(), self.arena.reserved_bytes(), "physical bytes");
        assert_eq!(self.device.taken(), self.taken(), "no handle is left of what is not mapped");
        let used: u64 = live.into_iter().map(|live| live.buffer.capacity()).sum();
        assert_eq!(self.arena.used(), used, "live bytes");
        assert!(self.arena.peak_used() >= used);
    }

    /// Bytes of the pages in which something is live.
    fn live_pages(&self) -> u64 {
        let mut pages = std::collections::BTreeSet::new();
        for span in self.arena.blocks() {
            if matches!(span.state, SpanState::Live { .. }) {
                pages.extend(span.offset / PAGE..(span.offset + span.bytes).div_ceil(PAGE));
            }
        }
        pages.len() as u64 * PAGE
    }

    /// Whether all that is mapped goes once nothing is live.
    fn check_end(self) {
        self.arena.release(0).expect("no fault");
        assert_eq!((self.taken(), self.arena.reserved_bytes(), self.arena.used()), (0, 0, 0));
        assert_eq!((self.arena.capacity(), self.device.inner().races()), (0, 0));
    }
}

impl Live {
    fn address(&self) -> u64 {
        self.buffer.memory().address().expect("the host has addresses")
            + self.buffer.offset().expect("it is live")
    }

    /// Whether it is in a stitched range.
    fn is_stitched(&self, scene: &Scene) -> bool {
        self.buffer.memory().address() != scene.arena.base()
    }
}
