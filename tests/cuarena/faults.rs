//! cuArena's weak points, W1 to W15: each test fails on the behaviour in its comment. Tests elsewhere fail on these:
//!
//! * W1, a free block beside the untouched end does not merge with it: `any_history_agrees_with_the_twin`.
//! * W2, copies overlap themselves: `untested::moves_that_overlap_themselves_keep_the_data`.
//! * W3 and W5, memory is reused before pending work on it: `order`, and `shared_law` of the growing arenas.
//! * W4, failed copies and panics of callbacks lose blocks: `untested::failed_calls`, `untested::callbacks`.
//! * W6, sizes overflow: `untested::sizes_that_overflow_are_errors`.
//! * W7, a failed resize spoils the books: `untested::arena_resize::a_failure_leaves_it_as_it_was`.
//! * W10, pageable memory is not aligned: `kinds::every_kind_is_aligned_as_it_says`.
//! * W11, stable blocks move: `regions`, `untested::limits`.
//! * W13, managed memory is freed by a wrong call: `kinds`.
//! * W15, stale frees free new owners: `untested::stale_buffers_get_errors_and_free_nothing`.

use super::{Audited, MB, Setup, check, discrete, setup};
use std::panic::{AssertUnwindSafe, catch_unwind};
use vrampool::arena::DeviceArena;
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, BackendError, Error};

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

/// Alignment was 128 bytes, whatever the device gives.
#[test]
fn w12_alignment_is_fixed() {
    let device = Audited::new(discrete()).with_properties(|properties| properties.alignment = 512);
    let setup = Setup::on(device, |builder| builder.limit(4 * MB));
    assert_eq!(setup.arena.alignment(), 512, "the device's");
    let (hole, blocks) = (setup.allocate(1), [1, 511, 513].map(|bytes| setup.allocate(bytes)));
    let are_aligned = || blocks.iter().all(|block| block.offset().expect("live").is_multiple_of(512));
    assert!(are_aligned());
    drop(hole);
    setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("no fault");
    assert_eq!(blocks[0].offset().expect("live"), 0, "it moved");
    assert!(are_aligned(), "and the others stay aligned");
    check(&setup.arena);
}

/// A failed question for free memory was overheard, and the device was whichever was current.
#[test]
fn w14_errors_and_devices_are_ignored() {
    let (device, other) = (discrete(), discrete());
    device.faults().fail_nth(Call::MemoryInfo, 1);
    let answer = DeviceArena::builder(&device).build();
    let error = answer.as_ref().err().and_then(Error::backend);
    assert!(matches!(error, Some(BackendError::Driver { call, .. }) if call == "MemoryInfo"), "{error:?}");
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
