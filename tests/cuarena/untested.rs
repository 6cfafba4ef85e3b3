//! Cases that cuArena's tests leave out.

mod arena_resize;
mod buffer_resize;
mod callbacks;
mod failed_calls;
mod limits;

use super::{
    Audited, KB, MB, Setup, audited, check, close_gate, contents, discrete, holds, pattern, setup,
    setup_with_stable,
};
use vrampool::arena::{ArenaBuffer, ArenaError, DeviceArena, Zone};
use vrampool::backend::Capabilities;
use vrampool::host::{Call, DeviceKind, HostDevice, HostStream};
use vrampool::{Backend, BackendError, Error, Memory, Placement};

/// A block of every size slides over a hole of every size, and one behind it too.
fn moves_keep_data<B: Backend<Stream = HostStream>>(setup: &Setup<B>, holes: &[u64], blocks: &[u64]) {
    for &hole_bytes in holes {
        for &bytes in blocks {
            let hole = setup.allocate(hole_bytes);
            let kept = [setup.filled(bytes, 1), setup.filled(bytes / 2 + 1, 2)];
            drop(hole);
            let report = setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("no fault");
            assert_eq!(report.moved_blocks, 2);
            assert_eq!(kept[0].offset().expect("live"), 0);
            for (n, buffer) in kept.iter().enumerate() {
                assert!(holds(buffer, &setup.stream, n as u64 + 1), "{bytes} bytes over {hole_bytes}");
            }
            check(&setup.arena);
        }
    }
}

const HOLES: [u64; 8] = [1, 192, 4 * KB, 64 * KB - 64, 64 * KB, 100_000, MB, 5 * MB + 64];
const BLOCKS: [u64; 7] = [1, 1000, 64 * KB, 64 * KB + 1, 300_000, 4 * MB, 9 * MB + 7];

#[test]
fn moves_that_overlap_themselves_keep_the_data() {
    moves_keep_data(&setup(64 * MB), &HOLES, &BLOCKS);
}

/// Neither the device nor the arena has room for a staging buffer, so pieces as long as the hole are copied.
#[test]
fn they_do_where_there_is_no_room_to_stage() {
    for hole_bytes in [1, 192, 4 * KB, 64 * KB] {
        let device = HostDevice::builder().kind(DeviceKind::Discrete).memory_limit(MB).build();
        let setup = Setup::on(device, |builder| builder.limit(MB));
        let (hole, kept) = (setup.allocate(hole_bytes), [setup.filled(1000, 1), setup.filled(300_000, 2)]);
        let rest = setup.filled(setup.arena.largest_free_block(Zone::Dynamic), 3);
        drop(hole);
        let report = setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("no fault");
        assert_eq!((report.moved_blocks, setup.arena.highest_end()), (3, setup.arena.used()));
        for (buffer, seed) in kept.iter().zip(1..).chain([(&rest, 3)]) {
            assert!(holds(buffer, &setup.stream, seed), "over {hole_bytes}");
        }
    }
}

fn without_copies_within_memory() -> Setup<Audited> {
    let device = Audited::new(discrete()).with_properties(|properties| {
        properties.capabilities.remove(Capabilities::COPY_WITHIN_MEMORY);
        properties.copy_granularity = 4;
    });
    Setup::on(device, |builder| builder.limit(32 * MB))
}

/// The device copies nothing within one memory, so all is staged.
#[test]
fn they_do_where_everything_is_staged() {
    moves_keep_data(&without_copies_within_memory(), &HOLES[..6], &BLOCKS);
}

#[test]
fn a_block_grows_elsewhere_where_everything_is_staged() {
    let setup = without_copies_within_memory();
    for bytes in [1001, 9 * MB + 7] {
        let (mut block, _wall) = (setup.filled(bytes, 1), setup.allocate(1));
        block.resize(bytes + MB, &setup.stream).expect("memory");
        assert!(contents(&block, &setup.stream)[..bytes as usize] == pattern(1, bytes), "{bytes}");
    }
}

#[test]
fn a_lost_device_is_an_error_and_drops_are_quiet() {
    let setup = setup(MB);
    let [other] = setup.streams();
    let (hole, mut block) = (setup.allocate(1000), setup.filled(1000, 1));
    drop(hole);
    setup.device.faults().lose_device();
    let lost = |answer: Result<(), Error>| assert!(answer.expect_err("lost").is_device_lost());
    lost(setup.arena.compact(u64::MAX, &other, |_| {}).map(drop));
    lost(block.on(&other).map(drop));
    lost(block.resize(10_000, &other));
    lost(setup.arena.resize(2 * MB));
    assert_eq!((block.len(), setup.arena.used()), (1000, block.capacity()));
    drop(block);
    assert_eq!(setup.arena.used(), 0);
}

#[test]
fn sizes_that_overflow_are_errors() {
    let setup = setup_with_stable(MB, 64 * KB);
    let used = setup.allocate(100);
    let overflows = |answer: Result<ArenaBuffer<HostDevice>, Error>| {
        let error = answer.expect_err("it overflows");
        assert!(matches!(error.arena(), Some(ArenaError::Overflow { .. })), "{error}");
        assert!(!error.is_out_of_memory());
    };
    for bytes in [u64::MAX, u64::MAX - 1, u64::MAX - 62] {
        overflows(setup.arena.allocate(bytes, &setup.stream));
        overflows(setup.arena.allocate_in(bytes, Zone::Stable, &setup.stream));
    }
    for bytes in [u64::MAX - 63, 1 << 63, MB + 1] {
        let error = setup.arena.allocate(bytes, &setup.stream).expect_err("too much");
        assert!(error.is_out_of_memory(), "{error}");
    }
    assert_eq!(setup.arena.align_up(u64::MAX), None);
    assert_eq!(setup.arena.align_up(1), Some(setup.arena.alignment()));
    assert_eq!(setup.arena.used(), used.capacity());
    check(&setup.arena);
}

#[test]
fn stale_buffers_get_errors_and_free_nothing() {
    type Forget = fn(&Setup);
    let ways: [Forget; 2] = [
        |setup| setup.arena.reset().expect("nothing moves"),
        |setup| setup.arena.resize(2 * MB).expect("memory"),
    ];
    for forget in ways {
        let setup = setup(MB);
        let mut stale = setup.filled(1000, 1);
        forget(&setup);
        let new = setup.filled(1000, 2);
        assert_eq!(new.offset().expect("live"), 0, "in the same place");
        let arena_error = |answer: Result<(), Error>| {
            assert!(matches!(
                answer.as_ref().err().and_then(Error::arena),
                Some(ArenaError::StaleBlock | ArenaError::ForeignBlock)
            ));
        };
        arena_error(stale.on(&setup.stream).map(drop));
        arena_error(stale.on_mut(&setup.stream).map(drop));
        arena_error(stale.used_on(&setup.stream));
        arena_error(stale.offset().map(drop));
        arena_error(stale.write(&[0; 1000], &setup.stream));
        arena_error(stale.read(&mut [0; 1000], &setup.stream));
        for bytes in [10, 1000, 5000] {
            arena_error(stale.resize(bytes, &setup.stream));
        }
        drop(stale);
        assert_eq!(setup.arena.used(), new.capacity());
        assert!(holds(&new, &setup.stream, 2));
    }
}

#[test]
fn a_block_of_which_a_region_exists_does_not_move() {
    let setup = setup(MB);
    let (hole, held, behind) = (setup.allocate(64 * KB), setup.filled(64 * KB, 1), setup.allocate(64 * KB));
    drop(hole);
    let region = held.on(&setup.stream).expect("live");
    let (copy, place) = (region.slice(10..20).expect("a part"), held.offset().expect("live"));
    drop(region);
    let compact = || setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("no fault");
    assert_eq!((compact().held_blocks, held.offset().expect("live")), (1, place));
    assert_eq!(behind.offset().expect("live"), 128 * KB);
    drop(copy);
    assert_eq!((compact().moved_blocks, held.offset().expect("live")), (2, 0));
    assert!(holds(&held, &setup.stream, 1));
}

/// As in cuArena, the most that was ever live, whatever was freed, reset or resized since.
#[test]
fn the_peak_is_for_life() {
    let setup = setup_with_stable(64 * MB, 16 * MB);
    let stable = setup.arena.allocate_in(MB, Zone::Stable, &setup.stream).expect("memory");
    let mut dynamic = setup.allocate(2 * MB);
    assert_eq!(setup.arena.peak_used(), 3 * MB);
    // Its data is copied from one block to the other.
    dynamic.resize(4 * MB, &setup.stream).expect("memory");
    assert_eq!(setup.arena.peak_used(), 7 * MB);
    drop((stable, dynamic));
    assert_eq!((setup.arena.used(), setup.arena.peak_used()), (0, 7 * MB));
    setup.arena.reset().expect("nothing moves");
    assert_eq!(setup.arena.peak_used(), 7 * MB);
    setup.arena.resize(32 * MB).expect("memory");
    assert_eq!(setup.arena.peak_used(), 7 * MB);
    let _more = setup.allocate(8 * MB);
    assert_eq!(setup.arena.peak_used(), 8 * MB);
    assert!(audited(MB).arena.peak_used() == 0, "another's is its own");
}
