//! Every call of the device that sleep and wake make fails once, in turn: what was there before is there
//! after it.

use crate::setup::{Block, Tag, Tags};
use crate::{MIB, Setup, discrete, filled_up, finish, pattern};
use vrampool::PoolBuilder;
use vrampool::arena::{ArenaBuffer, Attachment};
use vrampool::backend::AllocationRequest;
use vrampool::host::{Backend, Call, DeviceKind, HostDevice};
use vrampool_sleep::Offload;

/// All calls that can fail, but for those that tests themselves make.
const CALLS: [Call; 12] = [
    Call::Allocate,
    Call::CreateStream,
    Call::Record,
    Call::Wait,
    Call::Copy,
    Call::Upload,
    Call::Download,
    Call::Synchronize,
    Call::CreatePhysical,
    Call::Map,
    Call::SetAccess,
    Call::Unmap,
];

type Blocks = Vec<(u64, ArenaBuffer<HostDevice>)>;

fn setup(device: HostDevice) -> (Setup, Blocks) {
    let setup = Setup::with(device, |builder| builder.limit(56 * MIB).piece_bytes(4 * MIB));
    let blocks = setup.filled_up();
    let small = setup.arena.reserved_bytes();
    assert!(small > 0 && blocks.len() == 8);
    (setup, blocks)
}

/// Fails the `n`-th call of a kind for each `n` until one is too many; answers how many failed.
fn each_fault(
    device: &HostDevice,
    call: Call,
    mut attempt: impl FnMut() -> Result<(), vrampool_sleep::Error>,
    mut check: impl FnMut(&vrampool_sleep::Error),
) -> u64 {
    for n in 1.. {
        device.faults().fail_nth(call, n);
        let outcome = attempt();
        device.faults().clear();
        match outcome {
            Ok(()) => return n - 1,
            Err(error) => check(&error),
        }
    }
    unreachable!("it counts on")
}

/// One tag, and several.
#[test]
fn a_call_that_fails_leaves_all_tags_as_they_were() {
    const UNIT: u64 = MIB / 16;
    for names in [&["a"][..], &["a", "b", "c"]] {
        for (kind, offload) in [
            (DeviceKind::Discrete, Offload::Pinned),
            (DeviceKind::Integrated, Offload::Pageable),
            (DeviceKind::Discrete, Offload::Discard),
        ] {
            // All of it sixteen times smaller than elsewhere, for the number of calls.
            let device = HostDevice::builder().memory_limit(1 << 30).kind(kind).granularity(UNIT).build();
            let build = |builder: PoolBuilder<_>| builder.limit(56 * UNIT).piece_bytes(4 * UNIT);
            let tags = Tags::with(device, names, offload, build);
            let mut blocks =
                filled_up(UNIT, |bytes, seed| tags.filled(names[seed as usize % names.len()], bytes, seed));
            let addresses =
                |blocks: &[(u64, Block)]| blocks.iter().map(|(_, block)| block.address()).collect::<Vec<_>>();
            let all_hold =
                |blocks: &[(u64, Block)]| blocks.iter().all(|(seed, block)| tags.holds(block, *seed));
            let figures = |tag: &Tag| {
                let arena = tag.arena.arena();
                (arena.attachment(), arena.reserved_bytes(), tag.arena.backup_bytes())
            };
            let now = || (tags.free(), tags.all.iter().map(figures).collect::<Vec<_>>());
            let (places, mut faults) = (addresses(&blocks), [0; 2]);
            for call in CALLS {
                let awake = now();
                let sleep = || tags.sleep(names).map(drop);
                faults[0] += each_fault(&tags.device, call, sleep, |error| {
                    assert!(error.to_string().contains("injected"), "{error}");
                    tags.finish();
                    assert_eq!(now(), awake, "{call:?}");
                    assert!(all_hold(&blocks), "{call:?}");
                });
                let asleep = now();
                let wake = || tags.wake_up().map(drop);
                faults[1] += each_fault(&tags.device, call, wake, |error| {
                    assert!(error.to_string().contains("injected"), "{error}");
                    assert_eq!(now(), asleep, "{call:?}");
                });
                tags.finish();
                assert_eq!(addresses(&blocks), places, "{call:?}");
                if offload == Offload::Discard {
                    for (seed, block) in &mut blocks {
                        block.write(&pattern(*seed, block.len()), &tags.stream).expect("awake");
                    }
                }
                assert!(all_hold(&blocks), "{call:?}");
            }
            assert!(faults[0] > 2 && faults[1] > 20, "{offload:?}: {faults:?} calls failed");
        }
    }
}

/// What a refused sleep did not take out needs nothing.
#[test]
fn a_sleep_that_takes_nothing_out_makes_nothing_accessible() {
    let (setup, _blocks) = setup(discrete());
    let calls = || setup.device.faults().calls(Call::SetAccess);
    let before = calls();
    setup.device.faults().fail_nth(Call::Unmap, 1);
    assert!(setup.sleep.sleep(Offload::Discard).is_err());
    finish(&setup.sleep);
    assert_eq!((setup.arena.attachment(), calls()), (Attachment::Attached, before));
}

/// The device refuses, and then refuses the way back: asleep, but nothing is lost.
#[test]
fn a_second_fault_on_the_way_back_loses_nothing() {
    for offload in [Offload::Pinned, Offload::Discard] {
        for way_back in [Call::Map, Call::SetAccess] {
            let (setup, blocks) = setup(discrete());
            let before = setup.free();
            setup.device.faults().fail_nth(Call::Unmap, 2);
            setup.device.faults().fail_nth(way_back, 1);
            let error = setup.sleep.sleep(offload).expect_err("two faults");
            assert!(error.to_string().contains("Unmap"), "the first one: {error}");
            assert_eq!(setup.arena.attachment(), Attachment::Detached);
            assert!(setup.arena.reserved_bytes() > 0, "its memory is kept");
            assert!(setup.sleep.sleep(Offload::Discard).expect("nothing").no_op, "and stay so");
            let _ = setup.sleep.wake().expect("no fault");
            finish(&setup.sleep);
            assert!(setup.all_hold(&blocks), "{offload:?}, {way_back:?}");
            assert_eq!(setup.free(), before);
        }
    }
    let (setup, blocks) = setup(discrete());
    let before = setup.free();
    let _ = setup.sleep.sleep(Offload::Pinned).expect("no fault");
    setup.device.faults().fail_nth(Call::Copy, 2);
    setup.device.faults().fail_nth(Call::Unmap, 1);
    assert!(setup.sleep.wake().expect_err("two faults").to_string().contains("Copy"));
    assert!(setup.arena.attachment() == Attachment::Detached && setup.arena.reserved_bytes() > 0);
    let _ = setup.sleep.wake().expect("no fault");
    finish(&setup.sleep);
    assert!(setup.all_hold(&blocks));
    assert_eq!(setup.free(), before);
    // And what is emptied then is empty.
    let _ = setup.sleep.sleep(Offload::Pinned).expect("no fault");
    setup.device.faults().fail_nth(Call::SetAccess, 2);
    setup.device.faults().fail_nth(Call::Unmap, 1);
    assert!(setup.sleep.wake().is_err());
    setup.device.faults().fail_nth(Call::Unmap, 1);
    assert!(setup.arena.reset().is_err() && setup.arena.attachment() == Attachment::Detached);
    setup.arena.reset().expect("no fault");
    finish(&setup.sleep);
    drop(blocks);
    assert_eq!((setup.arena.used(), setup.arena.reserved_bytes(), setup.free()), (0, 0, 1 << 30));
}

/// vLLM's `test_python_error`: 70 % asleep, 70 % elsewhere, waking must raise, not crash.
#[test]
fn waking_without_memory_is_a_typed_error_and_succeeds_once_memory_is_free() {
    let device = HostDevice::builder().memory_limit(100 * MIB).build();
    let setup = Setup::new(device);
    let blocks: Vec<_> = (0..7).map(|seed| (seed, setup.filled(10 * MIB, seed))).collect();
    let _ = setup.sleep.sleep(Offload::Pinned).expect("no fault");
    let elsewhere = setup
        .device
        .allocate(&AllocationRequest::new(70 * MIB, vrampool::Placement::Device))
        .expect("it is free");
    for _ in 0..3 {
        let error = setup.sleep.wake().expect_err("there is no memory");
        assert!(error.is_out_of_memory(), "{error}");
        assert_eq!((setup.arena.attachment(), setup.free()), (Attachment::Detached, 30 * MIB));
    }
    drop(elsewhere);
    let _ = setup.sleep.wake().expect("there is memory");
    assert!(setup.all_hold(&blocks));
}

/// Too little pinned memory is what pageable memory is for.
#[test]
fn backups_go_to_pageable_memory_when_pinned_runs_out() {
    let setup = Setup::with(discrete(), |builder| builder.limit(100 * MIB));
    let blocks: Vec<_> = (0..3).map(|seed| (seed, setup.filled(20 * MIB, seed))).collect();
    setup.device.set_memory_limit(60 * MIB + 30 * MIB);
    let report = setup.sleep.sleep(Offload::Pinned).expect("pageable memory");
    assert_eq!((report.copied_bytes, setup.free()), (60 * MIB, 70 * MIB));
    let _ = setup.sleep.wake().expect("memory");
    assert!(setup.all_hold(&blocks));
}
