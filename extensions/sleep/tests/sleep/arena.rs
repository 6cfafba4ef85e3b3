//! A growing arena as a whole.

use crate::{MIB, Setup, address, discrete, finish, integrated, pattern};
use vrampool::Error;
use vrampool::arena::{ArenaError, Attachment, DeviceArena};
use vrampool::backend::AllocationRequest;
use vrampool::host::{Backend, HostDevice};
use vrampool_sleep::{Offload, SleepArena};

/// vLLM's `test_basic_cumem`, on an arena: values preserved, nothing mapped asleep, all of it restored.
#[test]
fn contents_and_addresses_stay_and_the_device_has_its_memory_meanwhile() {
    for (device, offload) in [
        (integrated(), Offload::Pinned),
        (integrated(), Offload::Pageable),
        (discrete(), Offload::Pinned),
        (discrete(), Offload::Pageable),
    ] {
        let setup = Setup::with(device, |builder| builder.limit(56 * MIB));
        let before = setup.free();
        let blocks = setup.filled_up();
        let addresses: Vec<_> = blocks.iter().map(|(_, buffer)| address(buffer)).collect();
        let (mapped, awake) = (setup.arena.reserved_bytes(), setup.free());
        assert_eq!(before - awake, mapped);
        let reserved = setup.arena.address_bytes();
        let report = setup.sleep.sleep(offload).expect("no fault");
        let live: u64 = blocks.iter().map(|(_, buffer)| buffer.capacity()).sum();
        assert_eq!(
            (report.physical_bytes, report.copied_bytes, report.discarded_bytes, report.no_op),
            (mapped, live, 0, false)
        );
        assert_eq!((setup.arena.attachment(), setup.arena.reserved_bytes()), (Attachment::Detached, 0));
        assert_eq!(setup.sleep.backup_bytes(), live);
        let pinned =
            if offload == Offload::Pinned && !setup.device.properties().is_integrated() { live } else { 0 };
        assert_eq!(before - setup.free(), pinned, "all of it is the device's, but for pinned memory");
        assert!(setup.arena.address_bytes() <= reserved);
        let report = setup.sleep.wake().expect("memory");
        assert_eq!((report.copied_bytes, report.no_op), (live, false));
        assert_eq!(report.physical_bytes, setup.arena.reserved_bytes());
        finish(&setup.sleep);
        assert_eq!(before - setup.free(), report.physical_bytes);
        assert_eq!(blocks.iter().map(|(_, buffer)| address(buffer)).collect::<Vec<_>>(), addresses);
        assert!(setup.all_hold(&blocks));
        // What woke is an arena like any other.
        drop(blocks);
        assert!(setup.all_hold(&setup.filled_up()));
        let mapped = setup.arena.reserved_bytes();
        assert_eq!(setup.arena.release(0).expect("no fault"), mapped);
        assert_eq!(setup.free(), before);
        assert_eq!(setup.device.races(), 0);
    }
}

#[test]
fn a_block_of_a_stitched_range_sleeps_and_wakes_there() {
    let setup = Setup::with(discrete(), |builder| builder.limit(24 * MIB).piece_bytes(4 * MIB));
    let blocks: Vec<_> = (0..6).map(|seed| setup.filled(4 * MIB, seed)).collect();
    let kept: Vec<_> =
        blocks.into_iter().enumerate().filter(|(n, _)| n % 2 == 1).map(|(_, block)| block).collect();
    let stitched = setup.filled(12 * MIB, 9);
    let place = address(&stitched);
    assert!(!std::ptr::eq(&*stitched.memory(), &*kept[0].memory()), "it is in a range of its own");
    for _ in 0..3 {
        let _ = setup.sleep.sleep(Offload::Pinned).expect("no fault");
        assert_eq!(setup.arena.reserved_bytes(), 0);
        let _ = setup.sleep.wake().expect("memory");
        assert_eq!(address(&stitched), place);
        assert!(
            setup.holds(&stitched, 9)
                && [1, 3, 5].iter().zip(&kept).all(|(&seed, block)| setup.holds(block, seed))
        );
    }
    // Freed asleep, its addresses go and its memory does not come back.
    let _ = setup.sleep.sleep(Offload::Pageable).expect("no fault");
    let addresses = setup.arena.address_bytes();
    drop(stitched);
    assert_eq!(setup.arena.address_bytes(), addresses - 12 * MIB);
    let report = setup.sleep.wake().expect("memory");
    assert_eq!((report.physical_bytes, report.copied_bytes), (12 * MIB, 12 * MIB));
    assert!([1, 3, 5].iter().zip(&kept).all(|(&seed, block)| setup.holds(block, seed)));
}

#[test]
fn memory_of_a_stitched_range_whose_pieces_went_before_sleeps_too() {
    let setup = Setup::with(integrated(), |builder| builder.limit(24 * MIB).piece_bytes(4 * MIB));
    let before = setup.free();
    let blocks: Vec<_> = (0..6).map(|seed| setup.filled(4 * MIB, seed)).collect();
    let odd = blocks.into_iter().enumerate().filter(|(n, _)| n % 2 == 1);
    let kept: Vec<_> = odd.map(|(n, block)| (n as u64, block)).collect();
    drop(setup.filled(12 * MIB, 7));
    // Of the range that was stitched for that, a third is free, and goes.
    let part = setup.filled(8 * MIB, 8);
    assert!(!std::ptr::eq(&*part.memory(), &*kept[0].1.memory()), "it is in that range");
    assert_eq!(setup.arena.release(0).expect("no fault"), 4 * MIB);
    let place = address(&part);
    for _ in 0..2 {
        let _ = setup.sleep.sleep(Offload::Pinned).expect("no fault");
        assert_eq!(setup.free(), before, "nothing is kept by a range that is mapped in part");
        let _ = setup.sleep.wake().expect("memory");
        assert!(setup.holds(&part, 8) && setup.all_hold(&kept) && address(&part) == place);
    }
    // What is freed of it is released although the rest of it is in use.
    drop(part);
    let _released = setup.arena.release(0).expect("no fault");
    assert_eq!(before - setup.free(), 12 * MIB);
}

/// Freeing a sleeping allocation unmapped it twice in vLLM (bug 5).
#[test]
fn freeing_a_sleeping_block_frees_it_and_its_backup_and_its_memory_does_not_come_back() {
    let setup = Setup::new(discrete());
    let before = setup.free();
    let (large, small) = (setup.filled(32 * MIB, 0), setup.filled(2 * MIB, 1));
    let _ = setup.sleep.sleep(Offload::Pinned).expect("no fault");
    assert_eq!(before - setup.free(), 34 * MIB);
    drop(large);
    assert_eq!((setup.sleep.backup_bytes(), before - setup.free()), (2 * MIB, 2 * MIB));
    assert_eq!(setup.arena.used(), 2 * MIB);
    let report = setup.sleep.wake().expect("memory");
    assert_eq!((report.physical_bytes, report.copied_bytes), (2 * MIB, 2 * MIB));
    assert!(setup.holds(&small, 1));
    let again = setup.filled(32 * MIB, 2);
    assert!(setup.holds(&again, 2) && setup.holds(&small, 1));
    drop((again, small));
    let _ = setup.sleep.sleep(Offload::Discard).expect("no fault");
    finish(&setup.sleep);
    assert_eq!((setup.sleep.wake().expect("nothing").physical_bytes, setup.free()), (0, before));
}

#[test]
fn asleep_everything_that_needs_memory_is_a_typed_error_and_the_rest_works() {
    let setup = Setup::new(integrated());
    let mut block = setup.filled(3 * MIB, 3);
    let _ = setup.sleep.sleep(Offload::Pinned).expect("no fault");
    let refused = |error: Error| {
        let text = error.to_string();
        assert!(
            matches!(error, Error::Asleep { live_bytes, .. } if live_bytes == 3 * MIB)
                && text.contains("wake"),
            "{text}"
        );
        assert!(!error.is_out_of_memory());
    };
    refused(setup.arena.allocate(100, &setup.stream).expect_err("asleep"));
    refused(setup.arena.allocate(100 * MIB, &setup.stream).expect_err("asleep"));
    refused(block.on(&setup.stream).expect_err("asleep"));
    refused(block.on_mut(&setup.stream).expect_err("asleep"));
    refused(block.used_on(&setup.stream).expect_err("asleep"));
    refused(block.write(&[1], &setup.stream).expect_err("asleep"));
    refused(block.resize(MIB, &setup.stream).expect_err("asleep"));
    refused(block.resize(30 * MIB, &setup.stream).expect_err("asleep"));
    assert_eq!((block.len(), setup.arena.used(), setup.arena.reserved_bytes()), (3 * MIB, 3 * MIB, 0));
    assert_eq!(setup.arena.release(0).expect("nothing"), 0);
    assert_eq!(setup.arena.decay().expect("nothing"), 0);
    assert_eq!(setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("nothing").moved_blocks, 0);
    // A limit that is too small for what is asleep refuses the wake, and nothing is lost.
    setup.arena.resize(2 * MIB).expect("a limit");
    assert!(setup.sleep.wake().expect_err("over the limit").is_out_of_memory());
    setup.arena.resize(8 * MIB).expect("a limit");
    let _ = setup.sleep.wake().expect("memory");
    assert!(setup.holds(&block, 3));
}

#[test]
fn a_reset_of_a_sleeping_arena_wakes_it_empty() {
    let setup = Setup::new(discrete());
    let before = setup.free();
    let block = setup.filled(20 * MIB, 3);
    let _ = setup.sleep.sleep(Offload::Pinned).expect("no fault");
    setup.arena.reset().expect("nothing is held");
    finish(&setup.sleep);
    assert_eq!(
        (setup.arena.attachment(), setup.arena.used(), setup.arena.reserved_bytes()),
        (Attachment::Attached, 0, 0)
    );
    assert_eq!(setup.free(), before);
    assert!(matches!(
        block.on(&setup.stream).as_ref().err().and_then(Error::arena),
        Some(ArenaError::StaleBlock)
    ));
    drop(block);
    let next = setup.filled(20 * MIB, 4);
    assert!(setup.holds(&next, 4));
}

/// vLLM's sleep never synchronised, and raced with work that was under way (bug 4).
#[test]
fn work_that_is_under_way_is_waited_for_on_live_and_on_freed_blocks() {
    let device =
        HostDevice::builder().memory_limit(1 << 30).work_latency(std::time::Duration::from_millis(3)).build();
    let setup = Setup::new(device);
    let other = setup.device.create_stream().expect("a stream");
    let (mut block, mut freed) = (setup.filled(MIB, 3), setup.filled(MIB, 4));
    block.write(&pattern(5, MIB), &other).expect("queued");
    freed.write(&pattern(6, MIB), &other).expect("queued");
    let reader = setup.device.create_stream().expect("a stream");
    let copy =
        setup.device.allocate(&AllocationRequest::new(MIB, vrampool::Placement::Device)).expect("memory");
    let region = vrampool::RegionMut::whole(&copy, &reader);
    setup.device.copy(&reader, freed.on(&reader).expect("awake"), region).expect("queued");
    drop(freed);
    let _ = setup.sleep.sleep(Offload::Pinned).expect("no fault");
    for stream in [&other, &reader] {
        setup.device.synchronize(stream).expect("no work met unmapped memory");
    }
    let _ = setup.sleep.wake().expect("memory");
    assert!(setup.holds(&block, 5));
    assert_eq!(setup.device.races(), 0);
}

#[test]
fn an_arena_that_does_not_grow_does_not_sleep() {
    let device = integrated();
    let arena = SleepArena::new(DeviceArena::builder(&device).limit(MIB).build().expect("an arena"));
    let refused = arena.sleep(Offload::Pinned).expect_err("it does not grow");
    assert!(matches!(refused.of_arena(), Some(Error::Backend(_))), "{refused}");
    assert!(arena.wake().expect("it is awake").no_op);
    assert_eq!(arena.arena().attachment(), Attachment::Attached);
}
