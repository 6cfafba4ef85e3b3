//! cuArena's weak points, W1 to W15: each test fails on the behaviour in its comment.

use super::{
    KB, MB, Setup, check, close_gate, contents, discrete, holds, pattern, probed, setup, setup_with_stable,
};
use crate::probe::Probe;
use std::panic::{AssertUnwindSafe, catch_unwind};
use vrampool::arena::DeviceArena;
use vrampool::arena::{ArenaError, Zone};
use vrampool::backend::AllocationRequest;
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, BackendError, Error, Event, Placement, RegionMut};

/// A free block beside the untouched end did not merge with it: after a free of 40 of 64 MiB, 48 MiB failed.
#[test]
fn w1_an_empty_pool_runs_out_of_memory() {
    for placement in [Placement::Device, Placement::HostVisible] {
        let setup = Setup::on(discrete(), |builder| builder.limit(64 * MB).memory(placement));
        drop(setup.allocate(40 * MB));
        assert_eq!((setup.arena.used(), setup.arena.largest_free_block(Zone::Dynamic)), (0, 64 * MB));
        drop(setup.allocate(48 * MB));
        for bytes in (1..=64).map(|n| n * MB) {
            drop(setup.allocate(bytes));
        }
    }
}

/// Copies overlapped themselves whenever the hole was smaller than the block. This device refuses such
/// copies.
#[test]
fn w2_self_overlapping_copies() {
    let setup = setup(64 * MB);
    let hole = setup.allocate(MB);
    let kept = [setup.filled(8 * MB, 0), setup.filled(8 * MB, 1)];
    drop(hole);
    let report = setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("no copy overlaps itself");
    assert_eq!((report.moved_blocks, report.moved_bytes), (2, 16 * MB));
    assert!(kept.iter().enumerate().all(|(n, buffer)| holds(buffer, &setup.stream, n as u64)));
    let memory = &*kept[0].memory();
    let overlapping = setup.device.copy(
        &setup.stream,
        vrampool::Region::new(memory, MB, 8 * MB, &setup.stream).expect("inside"),
        RegionMut::new(memory, 0, 8 * MB, &setup.stream).expect("inside"),
    );
    assert!(matches!(overlapping, Err(BackendError::InvalidArgument { .. })));
}

/// Memory was reused while copies of a compaction still had to read it.
#[test]
fn w3_memory_that_a_pending_copy_reads_is_not_reused() {
    let setup = setup(192 * KB);
    let [mover, other] = setup.streams();
    let (hole, kept) = (setup.allocate(96 * KB), setup.filled(96 * KB, 1));
    drop(hole);
    let gate = close_gate(&mover);
    assert_eq!(setup.arena.compact(u64::MAX, &mover, |_| {}).expect("no fault").moved_blocks, 1);
    let mut next = setup.arena.allocate(96 * KB, &other).expect("what the move left");
    next.write(&pattern(2, 96 * KB), &other).expect("queued");
    let wrote = setup.device.record(&other).expect("an event");
    assert!(!wrote.is_complete().expect("no fault"), "it waits for the copy");
    drop(gate);
    assert!(holds(&kept, &other, 1) && holds(&next, &setup.stream, 2));
    assert_eq!(setup.device.races(), 0);
}

/// After a failed copy or a throwing callback new addresses stood in the books and the data was elsewhere.
#[test]
fn w4_failing_copies_and_callbacks_lose_blocks() {
    let scene = || {
        let setup = setup(4 * MB);
        let hole = setup.allocate(100_000);
        let kept: Vec<_> = (0..4).map(|n| setup.filled(300_000, n)).collect();
        drop(hole);
        (setup, kept)
    };
    let all_valid = |setup: &Setup, kept: &[_]| {
        check(&setup.arena);
        assert!(kept.iter().enumerate().all(|(n, buffer)| holds(buffer, &setup.stream, n as u64)));
    };
    // Each block is three pieces.
    for n in 1..=12 {
        let (setup, kept) = scene();
        setup.device.faults().fail_nth(Call::Copy, n);
        let mut reported = 0;
        setup.arena.compact(u64::MAX, &setup.stream, |_| reported += 1).expect_err("the fault");
        assert_eq!(reported, (n - 1) / 3, "all that moved, and no other");
        all_valid(&setup, &kept);
        let report = setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("no fault any more");
        assert_eq!(report.moved_blocks, 4 - reported);
        all_valid(&setup, &kept);
    }
    for n in 0..4 {
        let (setup, kept) = scene();
        let mut reported = 0;
        let compaction = AssertUnwindSafe(|| {
            setup.arena.compact(u64::MAX, &setup.stream, |_| {
                assert!(reported < n, "a caller's bug");
                reported += 1;
            })
        });
        assert!(catch_unwind(compaction).is_err());
        all_valid(&setup, &kept);
    }
}

/// Freed memory was another stream's at once, while work could still use it.
#[test]
fn w5_frees_are_not_stream_ordered() {
    let setup = setup(64 * KB);
    let [other] = setup.streams();
    let result = setup.device.allocate(&AllocationRequest::new(64 * KB, Placement::Device)).expect("memory");
    let block = setup.filled(64 * KB, 1);
    let gate = close_gate(&setup.stream);
    let region = block.on(&setup.stream).expect("live");
    setup.device.copy(&setup.stream, region, RegionMut::whole(&result, &setup.stream)).expect("queued");
    drop(block);
    let mut next = setup.arena.allocate(64 * KB, &other).expect("the same bytes");
    next.write(&[0; 64 << 10], &other).expect("queued");
    let wrote = setup.device.record(&other).expect("an event");
    assert!(!wrote.is_complete().expect("no fault"), "it waits for the reader");
    drop(gate);
    let mut seen = vec![0; 64 << 10];
    let whole = vrampool::Region::whole(&result, &setup.stream);
    setup.device.download(&setup.stream, whole, &mut seen).expect("no fault");
    assert!(seen == pattern(1, 64 * KB));
}

/// A size that overflowed became 0 bytes, and the next block got the same address.
#[test]
fn w6_overflow_is_unchecked() {
    let setup = setup(MB);
    let bytes = setup.arena.allocate_elements::<u8>(u64::MAX, &setup.stream);
    assert!(matches!(bytes.as_ref().err().and_then(Error::arena), Some(ArenaError::Overflow { .. })));
    let doubles = setup.arena.allocate_elements::<f64>((1 << 61) + 1, &setup.stream);
    assert!(matches!(doubles.as_ref().err().and_then(Error::arena), Some(ArenaError::Overflow { .. })));
    let blocks = [setup.allocate(128), setup.allocate(128)];
    assert_ne!(blocks[0].offset().expect("live"), blocks[1].offset().expect("live"));
    let mut grown = setup.allocate(64);
    assert!(grown.resize(u64::MAX - 3, &setup.stream).is_err());
    drop((blocks, grown));
    assert_eq!(setup.arena.used(), 0);
    check(&setup.arena);
}

/// After a failed creation or resize the stable region stayed in the books, without memory.
#[test]
fn w7_a_failure_with_a_stable_region_leaves_half_a_pool() {
    let setup = setup_with_stable(64 * MB, 16 * MB);
    setup.device.faults().fail_nth(Call::Allocate, 1);
    setup.arena.resize(128 * MB).expect_err("the fault");
    let of = |region| (setup.arena.capacity_of(region), setup.arena.available(region));
    let as_it_was = || {
        assert_eq!((of(Zone::Stable), of(Zone::Dynamic)), ((16 * MB, 16 * MB), (48 * MB, 48 * MB)));
    };
    as_it_was();
    setup.arena.reset().expect("nothing moves");
    as_it_was();
    for region in [Zone::Stable, Zone::Dynamic] {
        let mut buffer = setup.arena.allocate_in(MB, region, &setup.stream).expect("memory");
        buffer.write(&pattern(1, MB), &setup.stream).expect("there is memory");
        assert!(holds(&buffer, &setup.stream, 1));
    }
    setup.device.faults().fail_nth(Call::Allocate, 1);
    let failed = DeviceArena::builder(&setup.device).limit(64 * MB).stable_bytes(MB).build();
    assert!(failed.is_err(), "there is no arena at all");
}

/// The CPU pool leaked when the GPU pool could not be created.
#[test]
fn w8_a_failed_creation_leaks() {
    let (device, host) = (discrete(), HostDevice::builder().memory_limit(1 << 30).build());
    let both = |gpu: Option<u64>| -> Result<_, Error> {
        let cpu = DeviceArena::builder(&host).limit(64 * MB).build()?;
        Ok((cpu, DeviceArena::builder(&device).limit(gpu).build()?))
    };
    let free = || [&device, &host].map(|device| device.memory_info().expect("no fault").free_bytes);
    assert!(both(Some(2 << 30)).is_err_and(|error| error.is_out_of_memory()));
    assert_eq!(free(), [1 << 30; 2]);
    for call in [Call::Allocate, Call::MemoryInfo] {
        device.faults().fail_nth(call, 1);
        assert!(both(None).is_err());
        assert_eq!(free(), [1 << 30; 2]);
    }
    assert!(DeviceArena::builder(&device).limit(MB).stable_bytes(MB).build().is_err());
    assert_eq!(free(), [1 << 30; 2]);
    let pair = both(Some(64 * MB)).expect("memory");
    assert_eq!(free(), [(1 << 30) - 64 * MB; 2]);
    drop(pair);
    assert_eq!(free(), [1 << 30; 2]);
}

/// The destructor could throw and end the program, for example after its stream was destroyed.
#[test]
fn w9_the_destructor_throws() {
    for lost in [false, true] {
        let Setup { device, stream, arena } = setup(MB);
        let buffers = [1000, 2000].map(|bytes| arena.allocate(bytes, &stream).expect("memory"));
        drop(stream);
        if lost {
            device.faults().lose_device();
        }
        for &call in Call::ALL {
            device.faults().fail_nth(call, 1);
        }
        let [one, other] = buffers;
        let drops = AssertUnwindSafe(|| {
            drop(one);
            drop(arena);
            drop(other);
        });
        assert!(catch_unwind(drops).is_ok());
        assert_eq!(device.faults().calls(Call::Free), 1, "one free of the range");
    }
}

/// The pageable pool started at an address that was off the alignment.
#[test]
fn w10_the_pageable_pool_is_not_aligned() {
    for limit in [KB, 10 * KB, 63 * KB, 100 * KB, MB] {
        let device = HostDevice::builder().memory_limit(1 << 30).build();
        let setup = Setup::on(device, |builder| builder.limit(limit));
        let alignment = setup.arena.alignment();
        let buffers = [1, 100, 65].map(|bytes| setup.allocate(bytes));
        for buffer in &buffers {
            let address = buffer.on(&setup.stream).expect("live").address().expect("the host has addresses");
            assert_eq!(address % alignment, 0);
        }
    }
}

/// Where there was no stable region a block that should stay was one that moved.
#[test]
fn w11_stable_becomes_dynamic() {
    let setup = setup(64 * MB);
    let answer = setup.arena.allocate_in(MB, Zone::Stable, &setup.stream);
    assert!(matches!(answer.as_ref().err().and_then(Error::arena), Some(ArenaError::NoStableZone)));
    // One as large as the pool was dropped with a warning; here it is an error.
    let builder = DeviceArena::builder(&setup.device).limit(64 * MB).stable_bytes(64 * MB);
    assert!(matches!(
        builder.build().as_ref().err().and_then(Error::arena),
        Some(ArenaError::StableTooLarge { .. })
    ));
    let with = setup_with_stable(64 * MB, 16 * MB);
    let hole = with.arena.allocate_in(MB, Zone::Stable, &with.stream).expect("memory");
    let kept = with.arena.allocate_in(MB, Zone::Stable, &with.stream).expect("memory");
    drop(hole);
    with.arena.compact(u64::MAX, &with.stream, |moved| panic!("{moved:?}")).expect("no fault");
    assert_eq!(kept.offset().expect("live"), MB);
}

/// Alignment was 128 bytes, whatever the device gives and the type needs.
#[test]
fn w12_alignment_is_fixed() {
    #[repr(align(4096))]
    struct Page(#[allow(dead_code, reason = "only its layout counts")] [u8; 4096]);

    let probe = Probe::new(discrete()).with_properties(|properties| properties.alignment = 512);
    let setup = Setup::on(probe, |builder| builder.limit(4 * MB));
    assert_eq!(setup.arena.alignment(), 512, "the device's");
    let hole = setup.allocate(1);
    let wall = setup.allocate(1);
    let pages = setup.arena.allocate_elements::<Page>(2, &setup.stream).expect("memory");
    let mut asked = setup.arena.allocate_aligned(100, 64 * KB, Zone::Dynamic, &setup.stream).expect("memory");
    let aligned =
        |buffer: &vrampool::arena::ArenaBuffer<Probe>, to| buffer.offset().expect("live").is_multiple_of(to);
    assert!(aligned(&pages, 4096) && aligned(&asked, 64 * KB));
    asked.write(&pattern(1, 100), &setup.stream).expect("no fault");
    drop((hole, wall));
    setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("no fault");
    assert_eq!(pages.offset().expect("live"), 0, "it moved");
    assert!(aligned(&asked, 64 * KB), "and it stays aligned");
    assert!(holds(&asked, &setup.stream, 1));
    check(&setup.arena);
    let _wall = setup.allocate(1);
    asked.resize(1000, &setup.stream).expect("memory");
    assert!(aligned(&asked, 64 * KB), "nor does it lose that when it grows elsewhere");
}

/// Managed memory was released by a call that is not documented for it.
#[test]
fn w13_managed_memory_is_released_by_its_own_call() {
    for placement in [Placement::Managed, Placement::Device, Placement::HostVisible] {
        let Setup { device, stream, arena } =
            Setup::on(discrete(), |builder| builder.limit(64 * MB).memory(placement));
        let buffer = arena.allocate(MB, &stream).expect("memory");
        assert_eq!(buffer.memory().kind(), placement.into(), "its own drop knows how");
        drop((arena, buffer));
        assert_eq!(device.faults().calls(Call::Free), 1);
        assert_eq!(device.memory_info().expect("no fault").free_bytes, 1 << 30);
    }
}

/// A failed question for free memory was overheard, and the device was whichever was current.
#[test]
fn w14_errors_and_devices_are_ignored() {
    let (device, other) = (discrete(), discrete());
    for clamped in [false, true] {
        device.faults().fail_nth(Call::MemoryInfo, 1);
        let builder = DeviceArena::builder(&device);
        let answer = if clamped { builder.limit(MB).clamp() } else { builder }.build();
        assert!(
            matches!(&answer.as_ref().err().and_then(Error::backend), Some(BackendError::Driver { call, .. }) if call == "memory_info")
        );
    }
    let asked = device.faults().calls(Call::MemoryInfo);
    let arena = DeviceArena::builder(&device).limit(MB).build().expect("memory");
    assert_eq!(device.faults().calls(Call::MemoryInfo), asked, "a plain limit needs no answer");
    assert_eq!((arena.device().id(), other.faults().calls(Call::Allocate)), (device.id(), 0));
    let foreign = other.create_stream().expect("a stream");
    let answer = arena.allocate(1, &foreign);
    assert!(
        matches!(answer, Err(Error::WrongDevice(wrong)) if wrong.pool == device.id() && wrong.given == other.id())
    );
    arena.resize(2 * MB).expect("memory");
    assert_eq!(other.faults().calls(Call::Allocate), 0);
    assert_eq!(device.memory_info().expect("no fault").free_bytes, (1 << 30) - 2 * MB);
}

/// A stale free of an address that was in use again freed the new owner; and nothing knew the bounds of a
/// block.
#[test]
fn w15_stale_frees_and_bounds_are_not_noticed() {
    let setup = probed(MB);
    let stale = setup.filled(1000, 1);
    let address = |buffer: &vrampool::arena::ArenaBuffer<Probe>| {
        buffer.on(&setup.stream).map(|region| region.address())
    };
    let before = address(&stale).expect("live");
    setup.arena.reset().expect("nothing moves");
    let mut new = setup.filled(1000, 2);
    assert_eq!(address(&new).expect("live"), before, "in use again");
    assert!(address(&stale).is_err());
    drop(stale);
    assert_eq!(setup.arena.used(), new.capacity());
    let [behind] = [setup.filled(1000, 3)];
    assert!(matches!(new.write(&[0; 1001], &setup.stream), Err(Error::Backend(_))), "beyond its length");
    assert!(matches!(new.read(&mut [0; 1001], &setup.stream), Err(Error::Backend(_))));
    assert!(new.on(&setup.stream).expect("live").slice(990..1001).is_err());
    assert!(new.on_mut(&setup.stream).expect("live").slice(1001..).is_err());
    assert_eq!(contents(&new, &setup.stream), pattern(2, 1000));
    assert!(holds(&behind, &setup.stream, 3));
}
