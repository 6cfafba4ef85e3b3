//! A release waits for work of another device, which may use an arena's memory. No request waits for it or for
//! unrelated work of its own device, and no wait holds a lock.

use crate::simulated::Simulated;
use fastrand::Rng;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::backend::AllocationRequest;
use vrampool::cuda::{CudaDevice, CudaMemory, CudaStream};
use vrampool::{Backend, Placement, RegionMut};
use vrampool_cuda_simulator_control::OUT_OF_MEMORY;

/// Pages of an arena's limit.
const PAGES: u64 = 64;

/// How long work may take that waits for nothing. Only a test that fails waits for so long.
const WATCHDOG: Duration = Duration::from_secs(20);

fn raw(stream: &CudaStream) -> usize {
    stream.cudarc().cu_stream() as usize
}

/// A stream with work that does not end before the value is dropped.
struct Held<'a> {
    simulated: &'a Simulated,
    _memory: CudaMemory,
    stream: CudaStream,
}

impl<'a> Held<'a> {
    fn on(device: &CudaDevice, simulated: &'a Simulated) -> Self {
        let stream = device.create_stream().expect("a stream");
        let memory = device.allocate(&AllocationRequest::new(4096, Placement::Device)).expect("memory");
        simulated.simulator.hold(raw(&stream));
        device.fill(&stream, RegionMut::whole(&memory, &stream), 1).expect("queued");
        Self { simulated, _memory: memory, stream }
    }

    /// Of the second device; `None` where there is one device.
    fn on_second(simulated: &'a Simulated) -> Option<Self> {
        let Ok(second) = CudaDevice::open(1) else {
            vrampool_test_support::skipped("the driver simulates one device (VRAMPOOL_SIMULATOR=devices=2)");
            return None;
        };
        Some(Self::on(&second, simulated))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.simulated.simulator.release(raw(&self.stream));
    }
}

/// Returns the message of a thread, unless the thread is blocked. Releases the held work before a failure.
fn in_time<T>(held: Held<'_>, done: &Receiver<T>, what: &str) -> T {
    let answer = done.recv_timeout(WATCHDOG);
    match answer {
        Ok(answer) => {
            drop(held);
            answer
        }
        Err(RecvTimeoutError::Timeout) => {
            drop(held);
            panic!("{what} waits for work that is not its own");
        }
        Err(RecvTimeoutError::Disconnected) => panic!("{what} failed"),
    }
}

struct Traffic {
    arena: DeviceArena<CudaDevice>,
    stream: CudaStream,
    page: u64,
    /// Bytes of addresses of the arena's range.
    own: u64,
    live: Vec<ArenaBuffer<CudaDevice>>,
    random: Rng,
}

impl Traffic {
    fn new(device: &CudaDevice) -> Self {
        let memory = device.virtual_memory().expect("virtual memory");
        let page = memory.granularity(Placement::Device.into()).expect("a granularity");
        let builder = DeviceArena::builder(device).growing().limit(PAGES * page).piece_bytes(page);
        let arena = builder.build().expect("an arena");
        let stream = device.create_stream().expect("a stream");
        let own = arena.address_bytes();
        Self { arena, stream, page, own, live: Vec::new(), random: Rng::with_seed(5) }
    }

    /// A request of a size that hardly repeats, or a free.
    fn step(&mut self) {
        if !self.live.is_empty() && self.random.u8(..9) < 4 {
            self.live.swap_remove(self.random.usize(..self.live.len()));
            return;
        }
        match self.arena.allocate(self.random.u64(self.page..PAGES / 4 * self.page), &self.stream) {
            Ok(buffer) => self.live.push(buffer),
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                for _ in 0..3.min(self.live.len()) {
                    self.live.swap_remove(self.random.usize(..self.live.len()));
                }
            }
        }
        // The points of its own work are reached: the other device's is all that is left to wait for.
        self.arena.device().synchronize(&self.stream).expect("no fault");
        assert!(self.arena.mappings() <= 4 * PAGES + 1024, "{} mappings", self.arena.mappings());
        assert!(self.arena.address_bytes() <= 8 * PAGES * self.page);
    }

    /// Bytes of addresses of stitched ranges.
    fn stitched(&self) -> u64 {
        self.arena.address_bytes() - self.own
    }

    /// Goes on until many stitched ranges were to be retired, and there is room for a few more.
    fn until_ranges_retire(&mut self) {
        // Unused ranges are released from three quarters of five times the limit on.
        while self.stitched() < 35 * PAGES / 8 * self.page {
            self.step();
        }
    }
}

#[test]
fn a_request_that_retires_ranges_does_not_wait_for_another_device() {
    let Some(simulated) = Simulated::open() else { return };
    let mut traffic = Traffic::new(&simulated.device);
    let Some(held) = Held::on_second(&simulated) else { return };
    let (done, is_done) = channel();
    let worker = thread::spawn(move || {
        traffic.until_ranges_retire();
        let _ = done.send(());
        traffic
    });
    in_time(held, &is_done, "a request");
    let mut traffic = worker.join().expect("no panic");
    // The last rung of the ladder waits and releases retired ranges: the bounds still hold.
    for _ in 0..2000 {
        traffic.step();
    }
    traffic.live.clear();
    traffic.arena.release(0).expect("no fault");
    assert_eq!((traffic.arena.mappings(), traffic.arena.stitched_ranges()), (0, 0));
    drop(traffic);
    assert_eq!(simulated.simulator.reports(), (0, String::new()));
}

#[test]
fn a_release_waits_for_another_device_without_a_lock() {
    let Some(simulated) = Simulated::open() else { return };
    let traffic = Traffic::new(&simulated.device);
    let (arena, stream, page) = (traffic.arena.clone(), traffic.stream.clone(), traffic.page);
    drop(arena.allocate(8 * page, &stream).expect("memory"));
    let Some(held) = Held::on_second(&simulated) else { return };
    let waits = || simulated.simulator.calls_of("cuMemFree_v2").expect("no zero in it");
    let before = waits();
    let releasing = thread::spawn(move || traffic.arena.release(0));
    while waits() == before {
        assert!(!releasing.is_finished(), "a release waits for other devices");
        thread::yield_now();
    }
    let (done, is_done) = channel();
    let worker = thread::spawn({
        let arena = arena.clone();
        move || {
            let buffer = arena.allocate(16 * page, &stream);
            let _ = done.send(());
            buffer
        }
    });
    in_time(held, &is_done, "a request beside a release");
    let buffer = worker.join().expect("no panic").expect("memory");
    releasing.join().expect("no panic").expect("no fault");
    drop(buffer);
    arena.release(0).expect("no fault");
    assert_eq!(arena.mappings(), 0);
    assert_eq!(simulated.simulator.reports(), (0, String::new()));
}

#[test]
fn a_range_that_cannot_be_stitched_is_unmapped_without_a_wait() {
    let Some(simulated) = Simulated::open() else { return };
    let Traffic { arena, stream, page, .. } = Traffic::new(&simulated.device);
    let pieces = (0..PAGES / 4).map(|_| arena.allocate(4 * page, &stream).expect("memory"));
    let pieces: Vec<_> = pieces.collect();
    let kept: Vec<_> = pieces.into_iter().step_by(2).collect();
    let held = Held::on(&simulated.device, &simulated);
    let before = arena.mappings();
    simulated.simulator.fail("cuMemMap", 2, OUT_OF_MEMORY).expect("no zero in it");
    let (done, is_done) = channel();
    let worker = thread::spawn({
        let arena = arena.clone();
        move || {
            let buffer = arena.allocate(12 * page, &stream);
            let _ = done.send(());
            buffer
        }
    });
    in_time(held, &is_done, "a request whose range cannot be stitched");
    let buffer = worker.join().expect("no panic").expect("it is stitched at the second try");
    assert_eq!(arena.mappings(), before + 12);
    drop((kept, buffer));
    arena.release(0).expect("no fault");
    assert_eq!(simulated.simulator.reports(), (0, String::new()));
}
