//! Sizes and limits that cannot be, or only just.

use super::{AuditDevice, Device, PAGE, scene};
use vrampool::Ledger;
use vrampool::arena::DeviceArena;
use vrampool::arena::{ArenaError, Zone};
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, BackendError, Error, Memory, Pool, SizeClasses, Source};

#[test]
fn sizes_that_cannot_be_are_errors() {
    for limit in [None, Some(100 * PAGE)] {
        let scene = scene(|builder| builder.limit(limit));
        let stream = &scene.streams[0];
        let mut kept = scene.live(3 * PAGE, 0, 1).expect("memory");
        // One that two streams used, which is free.
        scene.live(PAGE, 0, 2).expect("memory").buffer.used_on(&scene.streams[1]).expect("no fault");
        for bytes in [1 << 34, 1 << 45, 1 << 60, PAGE.wrapping_neg(), u64::MAX] {
            let refused = scene.arena.allocate(bytes, stream);
            assert!(refused.as_ref().err().and_then(Error::arena).is_some(), "{bytes}");
            assert!(kept.buffer.resize(bytes, stream).is_err());
        }
        assert!(matches!(
            scene.arena.allocate(0, stream).as_ref().err().and_then(Error::arena),
            Some(ArenaError::ZeroBytes)
        ));
        assert_eq!(scene.arena.allocate_in(8, Zone::Stable, stream).expect("all of it is stable").len(), 8);
        scene.check(&kept, 0);
        scene.check_books([&kept]);
        drop(kept);
        scene.check_end();
    }
}

/// Arenas within an ledger take addresses for that, and not for all of the device; more where it is
/// raised.
#[test]
fn addresses_are_in_proportion_to_a_ledgers_limit() {
    let device = HostDevice::builder().memory_limit(1 << 40).granularity(PAGE).build();
    let stream = device.create_stream().expect("a stream");
    let ledger = Ledger::new(32 * PAGE);
    let arena = DeviceArena::builder(&device).growing().within(&ledger).build().expect("an arena");
    assert!(arena.address_bytes() <= 8 * 32 * PAGE, "{} bytes", arena.address_bytes());
    let first = arena.allocate(30 * PAGE, &stream).expect("it is within the ledger");
    assert!(arena.allocate(300 * PAGE, &stream).expect_err("it is not").is_out_of_memory());
    ledger.set_limit(512 * PAGE);
    let second = arena.allocate(300 * PAGE, &stream).expect("it is within the ledger now");
    assert!(arena.address_bytes() <= 8 * 512 * PAGE, "{} bytes", arena.address_bytes());
    assert_eq!(ledger.charged(), 330 * PAGE);
    drop((first, second));
    arena.release(0).expect("no fault");
    assert_eq!(ledger.charged(), 0);
}

#[test]
fn a_stitched_block_cannot_have_no_bytes() {
    let scene = scene(|builder| builder.limit(40 * PAGE));
    let mut all: Vec<_> = (0..10).map(|n| scene.live(4 * PAGE, 0, n).expect("memory")).collect();
    all.remove(7);
    all.remove(2);
    let mut stitched = scene.live(8 * PAGE, 1, 50).expect("both holes");
    assert!(stitched.is_stitched(&scene));
    let refused = stitched.buffer.resize(0, &scene.streams[1]);
    assert!(
        matches!(refused.as_ref().err().and_then(Error::arena), Some(ArenaError::ZeroBytes)),
        "{refused:?}"
    );
    let refused = stitched.buffer.resize(9 * PAGE, &scene.streams[1]);
    assert!(refused.expect_err("the limit").is_out_of_memory());
    scene.check(&stitched, 2);
    scene.check_books(all.iter().chain([&stitched]));
}

#[test]
fn limits_that_cannot_be_are_errors() {
    let device = HostDevice::builder().granularity(PAGE).build();
    let refused = DeviceArena::builder(&device).growing().limit(PAGE - 1).build();
    assert!(
        matches!(&refused, Err(Error::Configuration(setting)) if setting.field == "limit"),
        "{refused:?}"
    );
    let refused = DeviceArena::builder(&device).growing().stable_bytes(1).build();
    assert!(
        matches!(&refused, Err(Error::Configuration(setting)) if setting.field == "stable_bytes"),
        "{refused:?}"
    );
    let coarse = HostDevice::builder().granularity(1 << 62).build();
    assert!(DeviceArena::builder(&coarse).growing().build().is_err(), "no such reservation");
    let device = HostDevice::builder().granularity(PAGE).build();
    let stream = device.create_stream().expect("a stream");
    let arena = DeviceArena::builder(&device).growing().limit(5 * PAGE - 1).build().expect("an arena");
    let four = arena.allocate(4 * PAGE, &stream).expect("what whole pages the limit has");
    assert!(arena.allocate(1, &stream).expect_err("the limit").is_out_of_memory());
    let refused = arena.resize(3 * PAGE);
    assert!(
        matches!(refused.as_ref().err().and_then(Error::arena), Some(ArenaError::CapacityInUse { .. })),
        "{refused:?}"
    );
    arena.resize(5 * PAGE).expect("it is raised");
    drop((arena.allocate(1, &stream).expect("room"), four));
    assert_eq!(arena.release(0).expect("no fault"), 5 * PAGE);
    arena.resize(0).expect("nothing is mapped");
    assert!(arena.allocate(1, &stream).expect_err("the limit").is_out_of_memory());
}

/// Where the device has less than the arena would take in reserve, and less than another piece at its end,
/// the remaining memory and free memory serve.
#[test]
fn a_device_that_is_nearly_full_serves_what_it_can() {
    let device =
        || AuditDevice::new(HostDevice::builder().memory_limit(300 * PAGE).granularity(PAGE).build());
    let build = |device: &Device| DeviceArena::builder(device).growing().piece_bytes(4 * PAGE).build();
    let (device, other) = (device(), device());
    let stream = device.create_stream().expect("a stream");
    let arena = build(&device).expect("an arena");
    let large = arena.allocate(299 * PAGE, &stream).expect("there is room");
    let small = arena.allocate(100, &stream).expect("the last page");
    assert!(arena.allocate(PAGE, &stream).expect_err("it is full").is_out_of_memory());
    drop((large, small));

    let stream = other.create_stream().expect("a stream");
    let arena = build(&other).expect("an arena");
    let mut all: Vec<_> =
        (0..74).map(|_| arena.allocate(4 * PAGE, &stream).expect("there is room")).collect();
    all.remove(40);
    all.remove(20);
    let both = arena.allocate(12 * PAGE, &stream).expect("two holes and the last four pages");
    assert_eq!(arena.reserved_bytes(), 300 * PAGE);
    drop((both, all));
}

/// A limit can be raised up to all that the device has, however low it was.
#[test]
fn a_low_limit_can_be_raised() {
    let scene = scene(|builder| builder.limit(PAGE));
    scene.arena.resize(1 << 30).expect("it is raised");
    let whole = scene.arena.allocate((1 << 30) - 2 * PAGE, &scene.streams[0]);
    assert_eq!(whole.expect("there are addresses").len(), (1 << 30) - 2 * PAGE);
    scene.check_end();
}

/// A captured stream gets existing memory, although no memory may be made for it.
#[test]
fn a_captured_stream_gets_what_is_mapped() {
    let scene = scene(|builder| builder);
    let [stream, ..] = &scene.streams;
    let kept = scene.arena.allocate(2 * PAGE, stream).expect("memory");
    drop(scene.arena.allocate(8 * PAGE, stream).expect("memory"));
    let calls = scene.arena.mapping().calls;
    scene.device.capture(&[stream]);
    let small = scene.arena.allocate(100, stream).expect("a part of the large hole");
    let refused = scene.arena.allocate(9 * PAGE, stream);
    assert!(matches!(refused, Err(Error::Capture { .. })), "{refused:?}");
    assert_eq!((scene.arena.mapping().calls, scene.device.forbidden()), (calls, 0));
    scene.device.capture(&[]);
    drop((small, kept));
    scene.check_end();
}

/// A graph may be launched at any time, so a range that it used stays, though a part of it that it did not
/// use goes.
#[test]
fn a_range_that_a_captured_stream_used_stays() {
    let scene = scene(|builder| builder.limit(40 * PAGE).piece_bytes(4 * PAGE));
    let [stream, other, _] = &scene.streams;
    let mut all: Vec<_> = (0..10).map(|_| scene.arena.allocate(4 * PAGE, other).expect("memory")).collect();
    for hole in [8, 5, 2] {
        all.remove(hole);
    }
    drop(scene.arena.allocate(12 * PAGE, other).expect("three holes"));
    let captured = scene.arena.allocate(8 * PAGE, stream).expect("two of them");
    let (place, addresses) = (captured.memory().address(), scene.arena.address_bytes());
    assert_ne!(place, scene.arena.base());
    scene.device.capture(&[stream]);
    drop(captured);
    assert_eq!(scene.arena.release(0).expect("no fault"), 4 * PAGE, "the hole that it did not use");
    assert_eq!(scene.arena.address_bytes(), addresses);
    scene.device.capture(&[]);
    drop(all);
    scene.check_end();
}

/// Buffers outlive the arena's handles, stitched ones too, and the last one releases all memory.
#[test]
fn the_last_buffer_releases_all_memory() {
    let scene = scene(|builder| builder.limit(40 * PAGE));
    let mut all: Vec<_> = (0..10).map(|n| scene.live(4 * PAGE, 0, n).expect("memory")).collect();
    all.remove(7);
    all.remove(2);
    let stitched = scene.live(8 * PAGE, 1, 50).expect("both holes");
    let super::Scene { device, arena, streams } = scene;
    drop(arena);
    drop(all);
    let mut bytes = vec![0; 8 << 12];
    stitched.buffer.read(&mut bytes, &streams[1]).expect("no fault");
    assert!(bytes == super::pattern(50, 8 * PAGE));
    assert!(device.taken() > 0);
    drop(stitched);
    let info = device.memory_info().expect("no fault");
    assert_eq!((device.taken(), info.free_bytes), (0, info.total_bytes));
}

/// Decay releases the memory that the last phase of a program did not need, with or without releases in
/// between.
#[test]
fn decay_releases_memory_that_was_not_needed() {
    let scene = scene(|builder| builder.piece_bytes(PAGE));
    drop(scene.live(100 * PAGE, 0, 1).expect("memory"));
    assert_eq!(scene.arena.decay().expect("no fault"), 0, "the first one");
    drop(scene.live(30 * PAGE, 0, 2).expect("memory"));
    assert_eq!(scene.arena.decay().expect("no fault"), 70 * PAGE);
    assert_eq!((scene.arena.decay().expect("no fault"), scene.taken()), (30 * PAGE, 0));
    // Memory that a release unmapped was not needed.
    drop(scene.live(50 * PAGE, 0, 3).expect("memory"));
    scene.arena.release(0).expect("no fault");
    assert_eq!(scene.arena.decay().expect("no fault"), 0);
    drop(scene.live(10 * PAGE, 0, 4).expect("memory"));
    drop(scene.live(3 * PAGE, 0, 4).expect("memory"));
    assert_eq!(scene.arena.decay().expect("no fault"), 0);
    assert_eq!((scene.arena.decay().expect("no fault"), scene.taken()), (10 * PAGE, 0));
    scene.check_end();
}

/// The peak of needed memory before a failed decay still counts for the next one.
#[test]
fn a_decay_that_fails_forgets_nothing() {
    let scene = scene(|builder| builder.piece_bytes(PAGE));
    drop(scene.live(100 * PAGE, 0, 1).expect("memory"));
    assert_eq!(scene.arena.decay().expect("no fault"), 0, "the first one");
    drop(scene.live(30 * PAGE, 0, 2).expect("memory"));
    for _ in 0..3 {
        scene.device.inner().faults().fail_nth(Call::Unmap, 1);
        assert!(scene.arena.decay().is_err());
        assert_eq!(scene.taken(), 100 * PAGE);
    }
    assert_eq!((scene.arena.decay().expect("no fault"), scene.taken()), (70 * PAGE, 30 * PAGE));
    scene.check_end();
}

#[test]
fn a_lowered_limit_keeps_what_is_live() {
    const MIB: u64 = 1 << 20;
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let builder = Pool::builder(&device).source(Source::Virtual).limit(64 * MIB);
    let pool = builder.build().expect("a pool");
    let live = pool.allocate(8 * MIB, &stream).expect("memory");
    drop(pool.allocate(4 * MIB, &stream).expect("memory"));
    pool.set_limit(4 * MIB).expect("as with every other source");
    assert_eq!((pool.limit(), pool.stats().reserved_bytes), (Some(4 * MIB), 8 * MIB));
    assert!(pool.allocate(2 * MIB, &stream).is_err(), "more is live");
    drop(live);
    drop(pool.allocate(4 * MIB, &stream).expect("all of it"));
    pool.set_limit(4 * MIB).expect("nothing is live");
    assert_eq!(pool.limit(), Some(4 * MIB));
    assert!(pool.allocate(8 * MIB, &stream).is_err());
}

/// Other owners of the device's memory would be refused while pieces are made in vain.
#[test]
fn a_request_that_cannot_be_served_takes_nothing_from_the_device() {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(64 * PAGE).granularity(PAGE).build());
    let stream = device.create_stream().expect("a stream");
    let others = Pool::builder(&device).size_classes(SizeClasses::Exact(1)).build().expect("a pool");
    let taken = others.allocate(24 * PAGE, &stream).expect("memory");
    let created = || device.inner().faults().calls(Call::CreatePhysical);
    for source in [None, Some(Source::Virtual)] {
        let (pieces, free) = (PAGE, 40 * PAGE);
        let before = created();
        let error = match source {
            None => {
                let arena =
                    DeviceArena::builder(&device).growing().piece_bytes(pieces).build().expect("an arena");
                arena.allocate(free + PAGE, &stream).map(drop)
            }
            Some(source) => {
                let pool = Pool::builder(&device).source(source).piece_bytes(pieces).build().expect("a pool");
                pool.allocate(free + PAGE, &stream).map(drop)
            }
        };
        let error = error.expect_err("the device has less");
        assert!(error.is_out_of_memory(), "{error}");
        let text = error.to_string();
        assert!(text.contains(&(free + PAGE).to_string()) && text.contains("160.0 KiB are free"), "{text}");
        assert_eq!(created(), before, "{text}");
    }
    drop(taken);
}

/// The device refused the markers of ranges that were retired: a release that waited for their stream unmaps them.
#[test]
fn retired_ranges_without_markers_leave_with_a_release() {
    const PAGES: u64 = 64;
    let scene = scene(|builder| builder.limit(PAGES * PAGE).piece_bytes(PAGE));
    let (own, mut random, mut live) = (scene.arena.address_bytes(), fastrand::Rng::with_seed(5), Vec::new());
    let stitched = || scene.arena.address_bytes() - own;
    scene.device.inner().faults().fail_all(Call::Record, BackendError::driver("record", 5, "refused"));
    // From three quarters of five times the limit on they are retired.
    while stitched() < 35 * PAGES / 8 * PAGE {
        if !live.is_empty() && random.u8(..9) < 4 {
            live.swap_remove(random.usize(..live.len()));
            continue;
        }
        match scene.arena.allocate(random.u64(PAGE..PAGES / 4 * PAGE), &scene.streams[0]) {
            Ok(block) => live.push(block),
            Err(_) => drop(live.drain(..live.len().min(3)).collect::<Vec<_>>()),
        }
    }
    drop(live);
    scene.arena.release(0).expect("no fault");
    assert_eq!((scene.arena.stitched_ranges(), stitched()), (0, 0));
    scene.check_end();
}
