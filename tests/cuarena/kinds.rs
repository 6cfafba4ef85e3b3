//! Properties of every kind of memory, and of pairs of arenas. Where cuArena names a test of a kind otherwise, it has
//! the name of the others.

use super::{KB, MB, Setup, check, contents, discrete};
use vrampool::arena::{ArenaError, Zone};
use vrampool::backend::MemoryKind;
use vrampool::host::HostDevice;
use vrampool::{Backend, Error, Memory, Placement};

/// A kind of cuArena's memory.
#[derive(Clone, Copy)]
enum Kind {
    Device,
    Managed,
    Pinned,
    Pageable,
}

const POOL: u64 = 256 * MB;
const FLOAT: u64 = size_of::<f32>() as u64;

impl Kind {
    fn setup(self, limit: u64) -> Setup {
        let placement = self.placement();
        match self {
            Self::Pageable => {
                Setup::on(HostDevice::builder().memory_limit(1 << 30).build(), |builder| builder.limit(limit))
            }
            _ => Setup::on(discrete(), |builder| builder.limit(limit).memory(placement)),
        }
    }

    fn placement(self) -> Placement {
        match self {
            Self::Device => Placement::Device,
            Self::Managed => Placement::Managed,
            Self::Pinned | Self::Pageable => Placement::HostVisible,
        }
    }
}

fn floats(setup: &Setup, count: u64) -> vrampool::arena::ArenaBuffer<HostDevice> {
    setup.arena.allocate_elements::<f32>(count, &setup.stream).expect("memory")
}

fn create_destroy(kind: Kind) {
    let Setup { device, arena, .. } = kind.setup(POOL);
    assert_eq!((arena.capacity(), arena.used()), (POOL, 0));
    assert_eq!(arena.kind(), MemoryKind::from(kind.placement()));
    assert_eq!(device.memory_info().expect("no fault").free_bytes, (1 << 30) - POOL);
    // A destroyed pool has capacity 0. Here the arena is dropped, and its bytes are free on the device.
    drop(arena);
    assert_eq!(device.memory_info().expect("no fault").free_bytes, 1 << 30);
}

fn allocate_deallocate(kind: Kind) {
    let setup = kind.setup(POOL);
    let buffer = floats(&setup, 1024);
    assert_eq!((buffer.len(), setup.arena.used()), (1024 * FLOAT, buffer.capacity()));
    drop(buffer);
    assert_eq!(setup.arena.used(), 0);
    check(&setup.arena);
}

fn available_tracks_capacity(kind: Kind) {
    let setup = kind.setup(POOL);
    let before = setup.arena.available(Zone::Dynamic);
    let buffer = floats(&setup, 1024);
    assert_eq!(setup.arena.available(Zone::Dynamic), before - buffer.capacity());
    drop(buffer);
    assert_eq!((before, setup.arena.available(Zone::Dynamic)), (POOL, POOL));
}

fn resize_buffer(kind: Kind) {
    let setup = kind.setup(POOL);
    let mut buffer = floats(&setup, 1024);
    buffer.resize(4096 * FLOAT, &setup.stream).expect("memory");
    assert_eq!((buffer.len(), setup.arena.used()), (4096 * FLOAT, buffer.capacity()));
    drop(buffer);
    assert_eq!(setup.arena.used(), 0);
}

/// In Rust a buffer is freed by dropping it, so no bytes are refused.
fn resize_to_zero_deallocates(kind: Kind) {
    let setup = kind.setup(POOL);
    let mut buffer = floats(&setup, 1024);
    let error = buffer.resize(0, &setup.stream).expect_err("no bytes");
    assert!(matches!(error.arena(), Some(ArenaError::ZeroBytes)), "{error}");
    assert_eq!((buffer.len(), setup.arena.used()), (1024 * FLOAT, buffer.capacity()));
    drop(buffer);
    assert_eq!(setup.arena.used(), 0);
}

fn resize_bail_when_already_large_enough(kind: Kind) {
    let setup = kind.setup(POOL);
    let mut buffer = floats(&setup, 4096);
    let offset = buffer.offset().expect("live");
    buffer.resize(1024 * FLOAT, &setup.stream).expect("it fits");
    assert_eq!((buffer.offset().expect("live"), buffer.len()), (offset, 1024 * FLOAT));
}

fn coalescing(kind: Kind) {
    let setup = kind.setup(POOL);
    let (first, second) = (floats(&setup, 1024), floats(&setup, 1024));
    let (used, offset) = (setup.arena.used(), first.offset().expect("live"));
    drop((first, second));
    check(&setup.arena);
    let both = floats(&setup, 2048);
    assert_eq!(both.offset().expect("live"), offset);
    assert!(setup.arena.used() <= used);
}

/// cuArena has an error type for each side; here the arena reports what it lacks, and its kind says of which
/// memory.
fn exhaustion_throws(kind: Kind) {
    let setup = kind.setup(4 * MB);
    let error = setup.arena.allocate(32 * MB, &setup.stream).expect_err("more than there is");
    assert!(error.is_out_of_memory());
    let Some(&ArenaError::NoSpace { bytes, available_bytes: available, largest_bytes: largest, .. }) =
        error.arena()
    else {
        panic!("{error}");
    };
    assert_eq!((bytes, available, largest), (32 * MB, 4 * MB, 4 * MB));
    assert_eq!(setup.allocate(4 * MB).capacity(), 4 * MB, "all of it is still to be had");
}

fn reset(kind: Kind) {
    let setup = kind.setup(POOL);
    let stale = [floats(&setup, 1024), floats(&setup, 1024)];
    setup.arena.reset().expect("nothing moves");
    assert_eq!((setup.arena.used(), setup.arena.available(Zone::Dynamic)), (0, POOL));
    let error = stale[0].on(&setup.stream).expect_err("it is not there any more");
    assert!(matches!(error.arena(), Some(ArenaError::StaleBlock)), "{error}");
}

/// A pointer to nothing is a buffer that is not there; freeing it is nothing at all.
fn null_zero_guard(kind: Kind) {
    let setup = kind.setup(POOL);
    let nothing = setup.arena.allocate(0, &setup.stream);
    assert!(matches!(nothing.as_ref().err().and_then(Error::arena), Some(ArenaError::ZeroBytes)));
    let nothing = setup.arena.allocate_elements::<f32>(0, &setup.stream);
    assert!(matches!(nothing.as_ref().err().and_then(Error::arena), Some(ArenaError::ZeroBytes)));
    drop(nothing);
    assert_eq!((setup.arena.used(), setup.arena.available(Zone::Dynamic)), (0, POOL));
}

/// Through a stream, and through the host's mapping of the same bytes.
fn read_write(kind: Kind) {
    let setup = kind.setup(POOL);
    let mut buffer = setup.arena.allocate_elements::<i32>(4, &setup.stream).expect("memory");
    let values: Vec<u8> = [10i32, 20, 30, 40].iter().flat_map(|value| value.to_le_bytes()).collect();
    buffer.write(&values, &setup.stream).expect("no fault");
    assert!(buffer.write(&[0; 17], &setup.stream).is_err(), "beyond its length");
    assert_eq!(contents(&buffer, &setup.stream), values);
    let offset = buffer.offset().expect("live");
    let mut mapped = [0; 16];
    setup.device.read_mapped(&buffer.memory(), offset, &mut mapped).expect("the host sees it");
    assert_eq!(mapped[..], values);
    setup.device.write_mapped(&buffer.memory(), offset, &[7; 16]).expect("the host sees it");
    assert_eq!(contents(&buffer, &setup.stream), [7; 16]);
}

macro_rules! kind {
    ($module:ident: $kind:ident, $($name:ident)*) => {
        mod $module {
            $(#[test]
            fn $name() {
                super::$name(super::Kind::$kind);
            })*
        }
    };
}

kind!(gpu_device: Device, create_destroy allocate_deallocate available_tracks_capacity resize_buffer resize_to_zero_deallocates
    resize_bail_when_already_large_enough coalescing exhaustion_throws reset null_zero_guard);
kind!(gpu_managed: Managed, create_destroy allocate_deallocate read_write resize_buffer coalescing exhaustion_throws reset);
kind!(cpu_pinned: Pinned, create_destroy allocate_deallocate read_write resize_buffer coalescing exhaustion_throws reset null_zero_guard);
kind!(cpu_pageable: Pageable, create_destroy allocate_deallocate read_write resize_buffer coalescing exhaustion_throws reset);

/// A GPU and a CPU pool in one object are two arenas here.
#[test]
fn a_device_and_a_host_arena_have_separate_books() {
    for (gpu, cpu) in
        [Kind::Device, Kind::Managed].into_iter().flat_map(|gpu| [(gpu, Kind::Pinned), (gpu, Kind::Pageable)])
    {
        let (device, host) = (gpu.setup(64 * MB), cpu.setup(32 * MB));
        assert_eq!((device.arena.capacity(), host.arena.capacity()), (64 * MB, 32 * MB));
        assert_eq!(device.arena.kind(), MemoryKind::from(gpu.placement()));
        assert_eq!(host.arena.kind(), MemoryKind::from(cpu.placement()));
        let (_on_device, on_host) = (device.allocate(MB), host.allocate(MB));
        assert_eq!((device.arena.used(), host.arena.used()), (MB, MB));
        drop(on_host);
        assert_eq!((device.arena.used(), host.arena.used()), (MB, 0));
    }
}

/// The host's own memory is as aligned as the arena says, also where the pool is small.
#[test]
fn every_kind_is_aligned_as_it_says() {
    for kind in [Kind::Device, Kind::Managed, Kind::Pinned, Kind::Pageable] {
        for limit in [KB, 60 * KB, POOL] {
            let setup = kind.setup(limit);
            let base = setup.arena.base().expect("the host has addresses");
            assert_eq!(base % setup.arena.alignment(), 0);
            let buffers = [setup.allocate(1), setup.allocate(65), setup.allocate(1)];
            for buffer in &buffers {
                let region = buffer.on(&setup.stream).expect("live");
                assert_eq!(region.address().expect("an address") % setup.arena.alignment(), 0);
                assert_eq!(Some(base), buffer.memory().address());
            }
        }
    }
}
