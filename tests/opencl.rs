//! A pool and an arena on every OpenCL device.
#![cfg(feature = "opencl")]

use opencl3::command_queue::enqueue_barrier_with_wait_list;
use opencl3::event::{CL_COMPLETE, create_user_event, release_event, set_user_event_status};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use vrampool::arena::DeviceArena;
use vrampool::opencl::{DeviceKind, OpenClDevice, TestKernels, list};
use vrampool::{Backend, Pool, Source};
use vrampool_test_support::{Count, require};

/// Returns every device, as it is and as if it were discrete, or skips the test without one.
fn devices() -> Vec<OpenClDevice> {
    let devices = require("opencl", list).unwrap_or_default();
    let builder = |ordinal| OpenClDevice::builder(ordinal).memory_limit(64 << 20);
    let both = |ordinal| [builder(ordinal), builder(ordinal).kind(DeviceKind::Discrete)];
    let builders = devices.iter().flat_map(|device| both(device.ordinal));
    builders.map(|builder| builder.build().expect("a device")).collect()
}

/// Also where the device passes for a discrete one, whose memory the host does not map.
#[test]
fn buffers_keep_what_kernels_wrote() {
    for device in devices() {
        let kernels = TestKernels::load(&device).expect("kernels");
        let streams = [0; 2].map(|_| device.create_stream().expect("a stream"));
        for source in [Source::Direct, Source::Arena] {
            let pool = Pool::builder(&device).limit(16 << 20).source(source).build().expect("a pool");
            let (mut random, mut live) = (fastrand::Rng::with_seed(5), Vec::new());
            for seed in 0..400 {
                let stream = &streams[random.usize(0..2)];
                let mut buffer = pool.allocate(random.u64(1..=200_000), stream).expect("memory");
                let region = buffer.on_mut(stream).expect("a region");
                kernels.write_pattern(stream, region, seed).expect("queued");
                live.push((seed, stream, buffer));
                if live.len() > 12 {
                    let (seed, stream, buffer) = live.swap_remove(random.usize(0..live.len()));
                    let (region, count) = (buffer.on(stream).expect("a region"), Count::new(&device, stream));
                    kernels.count_mismatches(stream, region, seed, count.on(stream)).expect("queued");
                    assert_eq!(count.read(stream), 0, "{seed}");
                }
            }
        }
    }
}

/// Work that waits for an event which the program completes later. The thread that completes it uses the
/// arena first: if it got the range of that work, it would wait for itself.
#[test]
fn a_thread_that_completes_an_event_gets_no_memory_that_waits_for_it() {
    /// Far longer than all of it takes, and the end of a run that would otherwise hang.
    const WATCHDOG: Duration = Duration::from_secs(60);
    const MIB: u64 = 1 << 20;
    for device in devices() {
        let [held, other] = [0; 2].map(|_| device.create_stream().expect("a stream"));
        let arena = DeviceArena::builder(&device).limit(32 * MIB).build().expect("an arena");
        let event = create_user_event(device.context()).expect("an event");
        let mut first = arena.allocate(MIB, &held).expect("memory");
        // SAFETY: the queue and the event exist.
        let barrier = unsafe { enqueue_barrier_with_wait_list(held.queue(), 1, &event) }.expect("queued");
        device.fill(&held, first.on_mut(&held).expect("a region"), 1).expect("queued");
        drop(first);
        let (done, is_done) = mpsc::channel();
        let worker = thread::spawn({
            let (arena, device) = (arena.clone(), device.clone());
            move || {
                let mut blocks = Vec::new();
                // All but the range of the work that waits.
                for _ in 0..31 {
                    let mut block = arena.allocate(MIB, &other).expect("memory");
                    device.fill(&other, block.on_mut(&other).expect("a region"), 2).expect("queued");
                    blocks.push(block);
                }
                device.synchronize(&other).expect("no fault");
                // From here on the program would complete the event.
                let _ = done.send(arena.stream_waits());
            }
        });
        let waits = is_done.recv_timeout(WATCHDOG);
        set_user_event_status(event, CL_COMPLETE).expect("it was not complete");
        worker.join().expect("no panic");
        device.synchronize(&held).expect("no fault");
        for event in [barrier, event] {
            // SAFETY: each is this test's own, released once.
            unsafe { release_event(event) }.expect("it exists");
        }
        assert_eq!(
            waits,
            Ok(0),
            "{}: it waited for the event that it was to complete",
            device.properties().name
        );
    }
}
