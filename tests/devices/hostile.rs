//! Hostile use, on every device where it makes sense: threads that end, memory that runs out, work that
//! nothing submits, streams that come and go, lengths that are a multiple of nothing, and work that waits.

use crate::kept_queue::KeptQueue;
use crate::there;
use crate::{DROPPED, KIB, MIB, STAGING};
use vrampool::arena::DeviceArena;
use vrampool::backend::AllocationRequest;
use vrampool::backend::Capabilities;
use vrampool::{Backend, Placement, Pool, RegionMut, SizeClasses, Source};
use vrampool_cuda_simulator_control::Simulator;

/// Idle memory of one kind makes room for another, and an error names the kind.
#[test]
fn idle_memory_makes_room_for_host_visible_memory() {
    there::on_each(|there| {
        let Some(there) = there.limited(32 * MIB).filter(|there| there.can(Capabilities::HOST_VISIBLE))
        else {
            return;
        };
        let [stream] = there.streams();
        // More than a half of it.
        let all = there.free();
        let visible =
            there.device.allocate(&AllocationRequest::new(MIB, Placement::HostVisible)).expect("memory");
        if there.free() == all {
            return vrampool_test_support::skipped(format_args!(
                "host-visible memory of {} is not the device's",
                there.name
            ));
        }
        drop(visible);
        let most = all * 5 / 8 / MIB * MIB;
        let pool =
            Pool::builder(&there.device).size_classes(SizeClasses::Multiple(MIB)).build().expect("a pool");
        for (idle, wanted) in
            [(Placement::Device, Placement::HostVisible), (Placement::HostVisible, Placement::Device)]
        {
            drop(pool.allocate_kind(most, idle, &stream).expect("memory"));
            assert_eq!(pool.stats().idle_bytes, most, "{}", there.name);
            let live = pool.allocate_kind(most, wanted, &stream).expect("what is idle makes room");
            let error = pool.allocate_kind(most, wanted, &stream).expect_err("all of it is live");
            assert!(error.is_out_of_memory(), "{}: {error}", there.name);
            drop(live);
            pool.trim().expect("a trim");
        }
        drop(pool);
        assert_eq!(there.free(), all, "{}", there.name);
    });
}

/// Large memory that is used a little and dropped, over and over, by a program that waits for nothing, on a
/// device that has no more than one of it.
#[test]
fn dropped_memory_comes_back_before_there_is_none() {
    const LIMIT: u64 = 64 * MIB;
    there::on_each(|there| {
        let Some(there) = there.alone(LIMIT) else { return };
        let [stream] = there.streams();
        let all = there.free();
        for source in [Source::Direct, Source::Arena] {
            for round in 0..4 {
                let builder = Pool::builder(&there.device).source(source).limit(LIMIT).max_cached_bytes(0);
                let pool = builder.size_classes(SizeClasses::Multiple(MIB)).build().expect("a pool");
                for _ in 0..10 {
                    let mut buffer = pool.allocate(50 * MIB, &stream).expect("memory");
                    let held = there.held().unwrap_or(0);
                    assert!(
                        held <= LIMIT + DROPPED + STAGING,
                        "{}, {source}: {held} bytes are held",
                        there.name
                    );
                    let start = buffer.on_mut(&stream).expect("a region").slice(..4 * KIB).expect("inside");
                    there.device.fill(&stream, start, round).expect("queued");
                }
                pool.trim().expect("a trim");
                drop(pool);
            }
            // The host's device frees what work uses when that is done.
            there.device.synchronize(&stream).expect("no fault");
            assert_eq!(there.free(), all, "{}, {source}: nothing is kept", there.name);
            let held = there.held().unwrap_or(0);
            assert!(held <= STAGING, "{}, {source}: {held} bytes are held", there.name);
        }
    });
}

/// Memory that outlives the streams on which it was used.
#[test]
fn memory_outlives_many_streams() {
    const STREAMS: u32 = 150;
    there::on_each(|there| {
        let placements = [
            (Placement::Device, Capabilities::empty()),
            (Placement::HostVisible, Capabilities::HOST_VISIBLE),
            (Placement::Managed, Capabilities::MANAGED),
        ];
        for (placement, _) in placements.into_iter().filter(|(_, needed)| there.can(*needed)) {
            let pool = Pool::builder(&there.device).memory(placement).build().expect("a pool");
            let [first] = there.streams();
            let mut buffer = pool.allocate(64 * KIB, &first).expect("memory");
            let (before, streams, mut queues) = (threads(), simulated_streams(), Vec::new());
            for round in 0..STREAMS {
                let [stream] = there.streams();
                queues.push(KeptQueue::of(&stream));
                there.write(&stream, buffer.on_mut(&stream).expect("a region"), u64::from(round));
                let count = there.count(&stream);
                count.verify(buffer.on(&stream).expect("a region"), u64::from(round));
                assert_eq!(count.read(), 0, "{}, {placement:?}, {round}", there.name);
            }
            assert!(threads() < before + STREAMS / 4, "{}: dropped streams still have threads", there.name);
            assert!(
                simulated_streams() < streams + STREAMS / 4,
                "{}: dropped streams still exist in the driver",
                there.name
            );
            let kept = queues.iter().filter(|queue| queue.is_kept()).count();
            assert!(kept < STREAMS as usize / 4, "{}, {placement:?}: {kept} queues are kept", there.name);
            let count = there.count(&first);
            count.verify(buffer.on(&first).expect("a region"), u64::from(STREAMS - 1));
            assert_eq!(count.read(), 0, "{}, {placement:?}", there.name);
        }
    });
}

/// Streams of the simulated CUDA driver, where it is loaded.
fn simulated_streams() -> u32 {
    let leaks = Simulator::loaded().map(Simulator::leaks).unwrap_or_default();
    leaks.iter().find_map(|line| line.strip_suffix(" streams")?.parse().ok()).unwrap_or(0)
}

/// Threads of this process, where that is known.
fn threads() -> u32 {
    std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count() as u32)
}

/// Lengths that are a multiple of nothing, at the start of larger memory.
#[test]
fn any_length_is_written_filled_copied_and_read() {
    there::on_each(|there| {
        let [stream] = there.streams();
        for source in there.sources() {
            let pool = Pool::builder(&there.device).source(source).limit(64 * MIB).build().expect("a pool");
            for bytes in [1, 2, 3, 5, 6, 7, 1001, 65_537, 3_000_001_u64] {
                let what = format!("{}, {source}, {bytes} bytes", there.name);
                let mut buffer = pool.allocate(bytes, &stream).expect("memory");
                let mut copy = pool.allocate(bytes, &stream).expect("memory");
                let data: Vec<u8> = (0..bytes).map(|byte| (byte * 7 + (byte >> 8)) as u8).collect();
                let mut read = vec![0; bytes as usize];
                buffer.write(&data, &stream).expect(&what);
                buffer.read(&mut read, &stream).expect(&what);
                assert!(read == data, "{what}");
                there.device.fill(&stream, copy.on_mut(&stream).expect("a region"), 9).expect(&what);
                copy.read(&mut read, &stream).expect(&what);
                assert!(read.iter().all(|&byte| byte == 9), "{what}");
                let (from, to) =
                    (buffer.on(&stream).expect("a region"), copy.on_mut(&stream).expect("a region"));
                match there.device.copy(&stream, from, to) {
                    Ok(()) => {
                        copy.read(&mut read, &stream).expect(&what);
                        assert!(read == data, "{what}");
                    }
                    // Both are parts of the arena's one memory.
                    Err(error) => assert!(!there.can(Capabilities::COPY_WITHIN_MEMORY), "{what}: {error}"),
                }
            }
        }
    });
}

/// With nearly all of a range free, no request gets the part that another stream is still at.
#[test]
fn a_request_gets_memory_that_waits_for_nothing() {
    const RANGE: u64 = 32 * MIB;
    there::on_each(|there| {
        if !there.has_concurrent_streams() {
            return;
        }
        let [busy, other] = there.streams();
        let arena = DeviceArena::builder(&there.device).limit(RANGE).build().expect("an arena");
        let mut first = arena.allocate(MIB, &busy).expect("memory");
        // Longer than all that follows: a fast device writes 1 MiB sooner than a thread queues that.
        let bytes = if there.is_fast() { 512 * MIB } else { MIB };
        let request = AllocationRequest::new(there.rounded(bytes), Placement::Device);
        let work = there.device.allocate(&request).expect("memory");
        for seed in 0..1000 {
            there.write(&busy, RegionMut::whole(&work, &busy), seed);
        }
        there.write(&busy, first.on_mut(&busy).expect("a region"), 1000);
        drop(first);
        let mut taken = Vec::new();
        for seed in 0..31 {
            let mut block = arena.allocate(MIB, &other).expect("memory");
            there.write(&other, block.on_mut(&other).expect("a region"), seed);
            taken.push(block);
        }
        assert_eq!(arena.stream_waits(), 0, "{}: all that was asked for was free without a wait", there.name);
        // The last one is what the busy stream had, and waits.
        let last = arena.allocate(MIB, &other).expect("memory");
        let waits = arena.stream_waits();
        // Another test of the process may have made the driver wait for all work.
        // A device may not answer at once that it is.
        let is_over = || waits == 0 && (0..100).any(|_| there.device.is_idle(&busy) == Ok(true));
        assert!(waits == 1 || is_over(), "{}: {waits} waits", there.name);
        let count = there.count(&other);
        for (seed, block) in (0..).zip(&taken) {
            count.verify(block.on(&other).expect("a region"), seed);
        }
        assert_eq!(count.read(), 0, "{}", there.name);
        drop((last, taken));
        // Through a pool, which keeps nothing idle.
        let pool = Pool::builder(&there.device).arena(&arena).max_cached_bytes(0).build().expect("a pool");
        let waits = arena.stream_waits();
        for round in 0..8 {
            let stream = if round % 2 == 0 { &busy } else { &other };
            drop(pool.allocate(MIB, stream).expect("memory"));
        }
        assert!(arena.stream_waits() <= waits + 1, "{}: each stream keeps to its own", there.name);
        there.device.synchronize(&busy).expect("no fault");
    });
}
