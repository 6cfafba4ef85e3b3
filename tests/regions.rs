//! The code that has a region, or anything made from one, has its block stay where it is: each way to a part keeps
//! the hold, and nothing moves, resets or puts to sleep what is held. (That a part cannot outlive its buffer,
//! nor a region made from the memory outlive the hold, are doctests that must not compile: `Region`,
//! `RegionMut`, `HeldMemory`, `Buffer`.)

#[allow(dead_code, reason = "other tests use all of it")]
#[path = "detached/mod.rs"]
mod detached;

use proptest::prelude::*;
use vrampool::arena::ArenaError;
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::backend::HeldMemory;
use vrampool::host::{HostDevice, HostMemory, HostStream};
use vrampool::{Backend, BackendError, Buffer, Error, Pool, Region, RegionMut, SizeClasses, Source};
use vrampool_test_support as _;

const BYTES: u64 = 4096;

/// A part of a region.
enum Part<'a> {
    Read(Region<'a, HostMemory>),
    Write(RegionMut<'a, HostMemory>),
    Memory(#[expect(dead_code, reason = "it holds")] HeldMemory<'a, HostMemory>),
}

/// A way from a buffer to a part of it. All other values that it creates are dropped when it returns.
type Way<'a> = fn(&'a mut Buffer<HostDevice>, &HostStream) -> Part<'a>;

/// Every way there is, by name.
fn ways<'a>() -> Vec<(&'static str, Way<'a>)> {
    const MIDDLE: u64 = BYTES / 2;
    fn all<'a>(buffer: &'a mut Buffer<HostDevice>, stream: &HostStream) -> RegionMut<'a, HostMemory> {
        buffer.on_mut(stream).expect("no fault")
    }
    vec![
        ("on", |buffer, stream| Part::Read(buffer.on(stream).expect("no fault"))),
        ("clone", |buffer, stream| Part::Read(buffer.on(stream).expect("no fault").clone())),
        ("slice", |buffer, stream| {
            Part::Read(buffer.on(stream).expect("no fault").slice(1..MIDDLE).expect("inside"))
        }),
        ("project", |buffer, stream| {
            Part::Read(buffer.on(stream).expect("no fault").project(|memory| Ok(memory)).expect("the same"))
        }),
        ("for_stream", |buffer, stream| Part::Read(buffer.on(stream).expect("no fault").for_stream(stream))),
        ("assume_exclusive", |buffer, stream| {
            Part::Write(buffer.on(stream).expect("no fault").assume_exclusive())
        }),
        ("on_mut", |buffer, stream| Part::Write(all(buffer, stream))),
        ("slice of on_mut", |buffer, stream| {
            Part::Write(all(buffer, stream).slice(MIDDLE..).expect("inside"))
        }),
        ("project of on_mut", |buffer, stream| {
            Part::Write(all(buffer, stream).project(|memory| Ok(memory)).expect("the same"))
        }),
        ("as_region", |buffer, stream| Part::Read(all(buffer, stream).as_region())),
        ("the first part", |buffer, stream| {
            Part::Write(all(buffer, stream).split_at(MIDDLE).expect("inside").0)
        }),
        ("the second part", |buffer, stream| {
            Part::Write(all(buffer, stream).split_at(MIDDLE).expect("inside").1)
        }),
        ("a part of a part", |buffer, stream| {
            let (_, rest) = all(buffer, stream).split_at(MIDDLE).expect("inside");
            Part::Write(rest.split_at(1).expect("inside").1.slice(..8).expect("inside"))
        }),
        ("what a reborrow leaves", |buffer, stream| {
            let mut region = all(buffer, stream);
            drop(region.reborrow());
            Part::Write(region)
        }),
        ("memory", |buffer, _| Part::Memory(buffer.memory())),
    ]
}

impl Part<'_> {
    fn offset(&self) -> Option<u64> {
        match self {
            Self::Read(region) => Some(region.offset()),
            Self::Write(region) => Some(region.offset()),
            Self::Memory(_) => None,
        }
    }

    /// Uses it for the last time.
    fn end(self, device: &HostDevice, stream: &HostStream) {
        if let Self::Write(region) = self {
            device.fill(stream, region, 7).expect("queued");
        }
    }
}

/// A pool over an arena with a hole at its front that its one buffer would move to.
fn scene() -> (HostDevice, HostStream, Pool<HostDevice>, Buffer<HostDevice>) {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device)
        .source(Source::Arena)
        .limit(1 << 20)
        .size_classes(SizeClasses::Multiple(BYTES))
        .max_cached_bytes(0)
        .build()
        .expect("a pool");
    let before = pool.allocate(BYTES, &stream).expect("memory");
    let buffer = pool.allocate(BYTES, &stream).expect("memory");
    drop(before);
    (device, stream, pool, buffer)
}

#[test]
fn every_part_of_a_region_keeps_its_block_where_it_is() {
    for number in 0..ways().len() {
        let (name, way) = ways()[number];
        let (device, stream, pool, mut buffer) = scene();
        let place = buffer.address();
        let part = way(&mut buffer, &stream);
        let offset = part.offset();
        let compact =
            || pool.arena().expect("it has one").compact(u64::MAX, &stream, |_| {}).expect("no fault");
        let report = compact();
        assert_eq!((report.moved_blocks, report.held_blocks), (0, 1), "{name}");
        assert_eq!(part.offset(), offset, "{name}");
        assert!(matches!(
            pool.arena().expect("it has one").reset().as_ref().err().and_then(Error::arena),
            Some(ArenaError::ServesPool)
        ));
        part.end(&device, &stream);
        assert_eq!(buffer.address(), place, "{name}");
        assert_eq!(compact().moved_blocks, 1, "{name}: nothing holds it any more");
        assert_ne!(buffer.address(), place, "{name}");
    }
}

/// Two halves are written while the pool closes its holes.
#[test]
fn writes_through_parts_arrive_in_the_buffer() {
    let (device, stream, pool, mut buffer) = scene();
    let (head, tail) = buffer.on_mut(&stream).expect("no fault").split_at(BYTES / 4).expect("inside");
    assert_eq!((head.len(), tail.len()), (BYTES / 4, 3 * BYTES / 4));
    assert_eq!((head.offset() + head.len(), head.stream_id()), (tail.offset(), tail.stream_id()));
    assert_eq!(head.address().map(|start| start + head.len()), tail.address());
    pool.compact(u64::MAX, &stream, |_| {}).expect("no fault");
    device.fill(&stream, head, 1).expect("queued");
    pool.compact(u64::MAX, &stream, |_| {}).expect("no fault");
    device.fill(&stream, tail, 2).expect("queued");
    pool.compact(u64::MAX, &stream, |_| {}).expect("no fault");
    let mut bytes = vec![0; BYTES as usize];
    buffer.read(&mut bytes, &stream).expect("no fault");
    let expected: Vec<u8> = (0..BYTES).map(|at| if at < BYTES / 4 { 1 } else { 2 }).collect();
    assert_eq!(bytes, expected);
}

#[test]
fn a_growing_arena_is_not_detached_under_a_part() {
    let device = HostDevice::new();
    if device.virtual_memory().is_none() {
        return;
    }
    let stream = device.create_stream().expect("a stream");
    let arena = DeviceArena::builder(&device).growing().limit(64 << 20).build().expect("an arena");
    let mut buffer: ArenaBuffer<_> = arena.allocate(BYTES, &stream).expect("memory");
    let is_pinned = |outcome: Result<_, Error>| {
        matches!(outcome.as_ref().err().and_then(Error::arena), Some(ArenaError::Pinned))
    };
    let part = buffer.on_mut(&stream).expect("no fault").split_at(1).expect("inside").1;
    assert!(is_pinned(detached::detach(&arena).map(drop)));
    drop(part);
    let memory = buffer.memory();
    assert!(is_pinned(detached::detach(&arena).map(drop)));
    drop(memory);
    assert!(detached::detach(&arena).expect("nothing is held").is_some());
    assert!(buffer.on_mut(&stream).is_err_and(|error| matches!(error, Error::Asleep { .. })));
}

/// A sub-allocator over a pool puts a hold of its own on a region of the pool's: both stay.
#[test]
fn a_second_hold_does_not_replace_the_first() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let (_device, stream, pool, mut buffer) = scene();
    let own = AtomicU32::new(0);
    let region = buffer.on_mut(&stream).expect("no fault").held(vrampool::backend::spi::Hold::new(&own));
    let (head, tail) = region.split_at(1).expect("inside");
    assert_eq!(own.load(Ordering::Relaxed), 2);
    drop(head);
    let report = pool.compact(u64::MAX, &stream, |_| {}).expect("no fault");
    assert_eq!((report.moved_blocks, report.held_blocks, own.load(Ordering::Relaxed)), (0, 1, 1));
    drop(tail);
    assert_eq!(own.load(Ordering::Relaxed), 0);
    assert_eq!(pool.compact(u64::MAX, &stream, |_| {}).expect("no fault").moved_blocks, 1);
}

/// An arena's own buffer, and one that is kept for a graph, stay as a pool's do.
#[test]
fn regions_of_other_handles_keep_their_block_too() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let arena = DeviceArena::builder(&device).limit(1 << 20).build().expect("an arena");
    let before = arena.allocate(BYTES, &stream).expect("memory");
    let mut buffer = arena.allocate(BYTES, &stream).expect("memory");
    drop(before);
    let moved = || arena.compact(None, &stream, |_| {}).expect("no fault").moved_blocks;
    let region = buffer.on(&stream).expect("no fault");
    assert_eq!(moved(), 0, "read");
    drop(region);
    let region = buffer.on_mut(&stream).expect("no fault");
    assert_eq!(moved(), 0, "written");
    drop(region);
    let memory = buffer.memory();
    assert_eq!(moved(), 0, "borrowed");
    drop(memory);
    assert_eq!(moved(), 1);

    let (device, stream, pool, first) = scene();
    let graph = pool.child("graph").private(true).build().expect("a pool");
    let mut buffer = graph.allocate(BYTES, &stream).expect("memory");
    drop(first);
    let region = buffer.on_mut(&stream).expect("no fault");
    let place = (region.offset(), region.address());
    pool.compact(None, &stream, |_| {}).expect("no fault");
    assert_eq!((region.offset(), region.address()), place);
    device.fill(&stream, region, 6).expect("queued");
    let region = buffer.on(&stream).expect("no fault");
    let mut bytes = vec![0; BYTES as usize];
    device.download(&stream, region, &mut bytes).expect("no fault");
    assert_eq!(bytes, vec![6; BYTES as usize]);
}

fn bytes_of(buffer: &Buffer<HostDevice>, stream: &HostStream) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len() as usize];
    buffer.read(&mut bytes, stream).expect("no fault");
    bytes
}

/// Neither the end of the pool nor a trim releases borrowed memory.
#[test]
fn memory_under_a_part_is_not_released() {
    for source in [Source::Direct, Source::Arena, Source::Virtual] {
        let device = HostDevice::new();
        if source == Source::Virtual && device.virtual_memory().is_none() {
            continue;
        }
        let stream = device.create_stream().expect("a stream");
        let builder = Pool::builder(&device).source(source).limit(64 << 20);
        let pool = builder.build().expect("a pool");
        let mut buffer = pool.allocate(BYTES, &stream).expect("memory");
        let (head, tail) = buffer.on_mut(&stream).expect("no fault").split_at(1).expect("inside");
        pool.trim().expect("a trim");
        if let Some(arena) = pool.arena() {
            arena.release(0).expect("no fault");
            arena.synchronize_freed(&stream).expect("no fault");
        }
        device.fill(&stream, head, 1).expect("queued");
        drop(pool);
        device.fill(&stream, tail, 2).expect("queued");
        let bytes = bytes_of(&buffer, &stream);
        assert!(bytes[0] == 1 && bytes[1..].iter().all(|&byte| byte == 2), "{source}");
    }
}

proptest! {
    /// Parts of parts lie side by side and make up the whole.
    #[test]
    fn parts_are_disjoint_and_all_of_the_region(cuts in prop::collection::vec(0..=BYTES + 1, 0..12)) {
        let (_device, stream, _pool, mut buffer) = scene();
        let mut rest = buffer.on_mut(&stream).expect("no fault");
        let (mut place, end) = (rest.offset(), rest.offset() + rest.len());
        for cut in cuts {
            if cut > rest.len() {
                let refused = rest.reborrow().split_at(cut);
                let is_invalid = matches!(refused, Err(BackendError::InvalidArgument { .. }));
                prop_assert!(is_invalid);
                continue;
            }
            let (part, left) = rest.split_at(cut).expect("inside");
            prop_assert_eq!((part.offset(), part.len(), part.is_empty()), (place, cut, cut == 0));
            prop_assert!(!part.as_region().overlaps(&left.as_region()));
            place += cut;
            rest = left;
        }
        prop_assert_eq!((rest.offset(), rest.offset() + rest.len()), (place, end));
    }
}
