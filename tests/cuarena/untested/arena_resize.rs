//! A range of another size: of the same kind and share, or as it was.

use super::*;

#[test]
fn it_keeps_kind_and_share_of_the_stable_region() {
    for placement in [Placement::Device, Placement::Managed, Placement::HostVisible] {
        let setup =
            Setup::on(discrete(), |builder| builder.limit(64 * MB).stable_bytes(16 * MB).memory(placement));
        for bytes in [128 * MB, 8 * MB, 64 * MB] {
            setup.arena.resize(bytes).expect("memory");
            let of = |region| setup.arena.capacity_of(region);
            assert_eq!((of(Zone::Stable), of(Zone::Dynamic)), (bytes / 4, bytes / 4 * 3));
            assert_eq!((setup.arena.used(), setup.arena.kind()), (0, placement.into()));
            assert_eq!(setup.device.memory_info().expect("no fault").free_bytes, (1 << 30) - bytes);
            let stable = setup.arena.allocate_in(MB, Zone::Stable, &setup.stream).expect("memory");
            assert_eq!((stable.memory().len(), stable.memory().kind()), (bytes, placement.into()));
            check(&setup.arena);
        }
    }
}

#[test]
fn a_failure_leaves_it_as_it_was() {
    let setup = setup_with_stable(600 * MB, 100 * MB);
    let stable = setup.arena.allocate_in(MB, Zone::Stable, &setup.stream).expect("memory");
    let dynamic = setup.filled(MB, 1);
    let faults = setup.device.faults();
    faults.fail_nth_with(Call::Allocate, 1, BackendError::driver("allocate", 2, "no"));
    let before = (setup.arena.blocks(), setup.arena.base(), setup.arena.peak_used());
    // A fault; more than there is beside the old one; more than any device has; nothing.
    for bytes in [64 * MB, 600 * MB, 1 << 62, u64::MAX, 0] {
        let error = setup.arena.resize(bytes).expect_err("it cannot be");
        assert!(error.backend().is_some(), "{error}");
        assert_eq!((setup.arena.blocks(), setup.arena.base(), setup.arena.peak_used()), before);
        assert!(holds(&dynamic, &setup.stream, 1) && stable.on(&setup.stream).is_ok());
    }
    let free = setup.device.memory_info().expect("no fault").free_bytes;
    assert_eq!(free, (1 << 30) - 600 * MB);
}

/// A device that has not room for both keeps the old one; what cuArena does is drop, then resize.
#[test]
fn the_old_range_lives_until_its_last_buffer_is_dropped() {
    let setup = setup(64 * MB);
    let (first, second) = (setup.filled(MB, 1), setup.allocate(MB));
    setup.device.synchronize(&setup.stream).expect("no fault");
    setup.arena.resize(32 * MB).expect("memory");
    let free = || setup.device.memory_info().expect("no fault").free_bytes;
    assert_eq!(free(), (1 << 30) - 96 * MB);
    drop(first);
    assert_eq!(free(), (1 << 30) - 96 * MB);
    drop(second);
    assert_eq!(free(), (1 << 30) - 32 * MB);
    assert_eq!(setup.arena.used(), 0);
}
