//! Cases that cuArena's tests leave out.

mod arena_resize;
mod buffer_resize;
mod callbacks;
mod failed_calls;
mod limits;

use super::{
    KB, MB, Setup, check, close_gate, contents, discrete, holds, pattern, probed, setup, setup_with_stable,
};
use crate::probe::Probe;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vrampool::arena::{Arena, ArenaError, ArenaLayout, Zone};
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::backend::Capabilities;
use vrampool::host::{Call, DeviceKind, HostDevice, HostMemory, HostStream};
use vrampool::{Backend, BackendError, Error, Memory, Placement};

/// A block of every size slides over a hole of every size, and one behind it too.
fn moves_keep_data<B: Backend<Memory = HostMemory, Stream = HostStream>>(
    setup: &Setup<B>,
    holes: &[u64],
    blocks: &[u64],
) {
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

fn without_copies_within_memory() -> Setup<Probe> {
    let probe = Probe::new(discrete()).with_properties(|properties| {
        properties.capabilities.remove(Capabilities::COPY_WITHIN_MEMORY);
        properties.copy_granularity = 4;
    });
    Setup::on(probe, |builder| builder.limit(32 * MB))
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
fn random_histories_keep_the_data() {
    let mut random = fastrand::Rng::with_seed(3);
    let setup = setup(8 * MB);
    let streams: [HostStream; 3] = setup.streams();
    let mut live: Vec<(ArenaBuffer<HostDevice>, u64)> = Vec::new();
    for seed in 0..1500 {
        let stream = &streams[random.usize(..3)];
        let bytes = 1 << random.u32(4..19) | random.u64(..64);
        match random.u32(..10) {
            0..5 => match setup.arena.allocate(bytes, stream) {
                Ok(mut buffer) => {
                    buffer.write(&pattern(seed, bytes), stream).expect("no fault");
                    live.push((buffer, seed));
                }
                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
            },
            5..8 if !live.is_empty() => drop(live.swap_remove(random.usize(..live.len()))),
            8 if !live.is_empty() => {
                let (buffer, seed) = random.choice(&mut live).expect("some are live");
                let before = buffer.len();
                match buffer.resize(bytes, stream) {
                    Ok(()) => {
                        let kept = before.min(bytes) as usize;
                        assert!(contents(buffer, stream)[..kept] == pattern(*seed, before)[..kept]);
                        buffer.write(&pattern(*seed, bytes), stream).expect("no fault");
                    }
                    Err(error) => assert!(error.is_out_of_memory() && buffer.len() == before, "{error}"),
                }
            }
            _ => drop(setup.arena.compact(random.u64(..4 * MB), stream, |_| {}).expect("no fault")),
        }
        check(&setup.arena);
    }
    while setup.arena.compact(2 * MB, &streams[0], |_| {}).expect("no fault").moved_blocks > 0 {}
    assert_eq!(setup.arena.fragmentation(Zone::Dynamic), 0.0, "packed");
    for (buffer, seed) in &live {
        assert!(holds(buffer, random.choice(&streams).expect("three"), *seed));
    }
    assert_eq!(setup.device.races(), 0);
}

/// One worker fewer when it is dropped, also by a panic.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn threads_allocate_use_and_free_while_another_compacts() {
    const WORKERS: usize = 3;
    let setup = setup(16 * MB);
    let (Setup { device, arena, .. }, working) = (&setup, AtomicUsize::new(WORKERS));
    let moved = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS as u64 {
            let (working, moved) = (&working, &moved);
            scope.spawn(move || {
                let _done = Done(working);
                let mut random = fastrand::Rng::with_seed(worker);
                let stream = device.create_stream().expect("a stream");
                let mut live: Vec<(ArenaBuffer<HostDevice>, u64)> = Vec::new();
                // More of them until something moved: the compacting thread may be scheduled after the first steps.
                for step in 0..100_000 {
                    if step >= 400 && moved.load(Ordering::Relaxed) > 0 {
                        break;
                    }
                    let seed = worker << 32 | step;
                    if live.len() < 12 {
                        let bytes = 1 << random.u32(6..18) | random.u64(..64);
                        let mut buffer = arena.allocate(bytes, &stream).expect("room for all");
                        buffer.write(&pattern(seed, bytes), &stream).expect("no fault");
                        live.push((buffer, seed));
                    }
                    if live.len() >= 12 || random.bool() {
                        let (mut buffer, seed) = live.swap_remove(random.usize(..live.len()));
                        assert!(holds(&buffer, &stream, seed));
                        if random.bool() {
                            let before = buffer.len();
                            buffer.resize(before + 5000, &stream).expect("room for all");
                            assert!(contents(&buffer, &stream)[..before as usize] == pattern(seed, before));
                        }
                    }
                }
                for (buffer, seed) in live {
                    assert!(holds(&buffer, &stream, seed));
                }
            });
        }
        let stream = device.create_stream().expect("a stream");
        while working.load(Ordering::SeqCst) > 0 {
            let report = arena.compact(MB, &stream, |_| {}).expect("no fault");
            moved.fetch_add(report.moved_blocks, Ordering::Relaxed);
            std::thread::yield_now();
        }
    });
    assert!(moved.load(Ordering::Relaxed) > 0, "nothing moved, so nothing was tested");
    assert_eq!((arena.used(), arena.largest_free_block(Zone::Dynamic)), (0, 16 * MB));
    assert_eq!(device.races(), 0);
    check(arena);
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
    for count in [u64::MAX, (1 << 61) + 1, 1 << 61] {
        overflows(setup.arena.allocate_elements::<f64>(count, &setup.stream));
    }
    for bytes in [u64::MAX - 63, 1 << 63, MB + 1] {
        let error = setup.arena.allocate(bytes, &setup.stream).expect_err("too much");
        assert!(error.is_out_of_memory(), "{error}");
    }
    for alignment in [0, 3, 96, u64::MAX] {
        let answer = setup.arena.allocate_aligned(1, alignment, Zone::Dynamic, &setup.stream);
        assert!(matches!(
            answer.as_ref().err().and_then(Error::arena),
            Some(ArenaError::Alignment { alignment: given, .. }) if *given == alignment
        ));
    }
    assert!(setup.arena.allocate_aligned(1, 1 << 63, Zone::Dynamic, &setup.stream).is_err());
    assert_eq!(setup.arena.align_up(u64::MAX), None);
    assert_eq!(setup.arena.align_up(1), Some(setup.arena.alignment()));
    assert_eq!(setup.arena.used(), used.capacity());
    check(&setup.arena);
}

/// A buffer frees itself once and where it came from; the numbers below it are checked.
#[test]
fn double_and_foreign_use_are_errors() {
    let mut arena = Arena::new(ArenaLayout::new(MB)).expect("a layout");
    let mut other = Arena::new(ArenaLayout::new(MB)).expect("a layout");
    let block = arena.allocate(100, Zone::Dynamic).expect("space");
    let others = other.allocate(100, Zone::Dynamic).expect("space");
    assert_eq!(arena.free(others), Err(ArenaError::ForeignBlock));
    assert_eq!(arena.resize_in_place(others, 1), Err(ArenaError::ForeignBlock));
    assert_eq!(arena.free(block), Ok(()));
    let reused = arena.allocate(100, Zone::Dynamic).expect("space");
    assert_eq!(arena.offset(reused), Ok(0));
    assert_eq!(arena.free(block), Err(ArenaError::StaleBlock), "not the new owner's");
    assert_eq!(arena.offset(block), Err(ArenaError::StaleBlock));
    arena.reset();
    assert_eq!(arena.free(reused), Err(ArenaError::StaleBlock));
    assert_eq!((arena.used(), other.used()), (0, 256));
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
            arena_error(stale.resize_discarding(bytes, &setup.stream));
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

#[test]
fn passes_within_a_budget_come_to_the_same() {
    let setup = setup(4 * MB);
    let mut live: Vec<_> = (0..20).map(|n| setup.filled(50_000 + n * 64, n)).map(Some).collect();
    live.iter_mut().step_by(3).for_each(|block| drop(block.take()));
    let (mut passes, budget) = (0, 120_000);
    loop {
        let report = setup.arena.compact(budget, &setup.stream, |_| {}).expect("no fault");
        assert!(report.moved_bytes <= budget);
        if report.moved_blocks == 0 {
            break;
        }
        passes += 1;
    }
    assert!(passes > 5);
    assert_eq!(setup.arena.highest_end(), setup.arena.used());
    for (n, buffer) in live.iter().enumerate().filter_map(|(n, block)| Some((n, block.as_ref()?))) {
        assert!(holds(buffer, &setup.stream, n as u64));
    }
}

/// As in cuArena, the most that was ever live, whatever was freed, reset or resized since.
#[test]
fn the_peak_is_for_life() {
    let setup = setup_with_stable(64 * MB, 16 * MB);
    let stable = setup.arena.allocate_in(MB, Zone::Stable, &setup.stream).expect("memory");
    let mut dynamic = setup.allocate(2 * MB);
    assert_eq!(setup.arena.peak_used(), 3 * MB);
    dynamic.resize(4 * MB, &setup.stream).expect("memory");
    assert_eq!(setup.arena.peak_used(), 5 * MB);
    drop((stable, dynamic));
    assert_eq!((setup.arena.used(), setup.arena.peak_used()), (0, 5 * MB));
    setup.arena.reset().expect("nothing moves");
    assert_eq!(setup.arena.peak_used(), 5 * MB);
    setup.arena.resize(32 * MB).expect("memory");
    assert_eq!(setup.arena.peak_used(), 5 * MB);
    let _more = setup.allocate(6 * MB);
    assert_eq!(setup.arena.peak_used(), 6 * MB);
    assert!(probed(MB).arena.peak_used() == 0, "another's is its own");
}

/// A compaction allocates nothing, so neither the peak nor the used bytes change.
#[test]
fn a_compaction_is_no_peak() {
    let setup = setup(16 * MB);
    let (hole, _kept) = (setup.allocate(64), setup.allocate(MB));
    drop(hole);
    let before = (setup.arena.peak_used(), setup.arena.used());
    assert_eq!(setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("no fault").moved_blocks, 1);
    assert_eq!((setup.arena.peak_used(), setup.arena.used()), before);
}
