//! Misses that an arena serves, and blocks that go back to it, in one round of the pool's lock: in order, and with
//! nothing kept that is the arena's.

use vrampool::arena::Zone;
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::backend::AllocationRequest;
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Backend, BackendError, Buffer, Placement, Pool, Region, RegionMut, Source};
use vrampool_test_support::close_gate;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A device with an arena, and a pool on it that keeps nothing.
struct Scene {
    device: HostDevice,
    arena: DeviceArena<HostDevice>,
    pool: Pool<HostDevice>,
    streams: [HostStream; 3],
}

fn scene() -> Scene {
    let device = HostDevice::builder().memory_limit(64 * MIB).build();
    let arena = DeviceArena::builder(&device).limit(16 * MIB).build().expect("an arena");
    let pool = Pool::builder(&device).source(Source::Arena).arena(&arena).max_cached_bytes(0);
    let streams = std::array::from_fn(|_| device.create_stream().expect("a stream"));
    Scene { pool: pool.build().expect("a pool"), arena, streams, device }
}

impl Scene {
    fn allocate(&self, bytes: u64, stream: usize) -> Buffer<HostDevice> {
        self.pool.allocate(bytes, &self.streams[stream]).expect("memory")
    }

    /// Has a record for each of the next blocks: of those that lie where the stream's own did before.
    fn warm(&self, blocks: usize, stream: usize) {
        for _ in 0..2 {
            let warm: Vec<_> = (0..blocks).map(|_| self.allocate(KIB, stream)).collect();
            drop(warm);
        }
    }

    /// Takes all that is free but what so many blocks of the first stream's had: what is left takes a wait of
    /// any other.
    fn leave(&self, blocks: usize) -> Vec<ArenaBuffer<HostDevice>> {
        let left: Vec<_> = (0..blocks).map(|_| self.allocate(KIB, 0)).collect();
        let rest = self.take_all();
        drop(left);
        rest
    }

    /// Takes all that is free, on the first stream.
    fn take_all(&self) -> Vec<ArenaBuffer<HostDevice>> {
        let largest = || Some(self.arena.largest_free_block(Zone::Dynamic)).filter(|bytes| *bytes > 0);
        let take = |bytes| self.arena.allocate(bytes, &self.streams[0]).expect("it is free");
        std::iter::from_fn(|| largest().map(take)).collect()
    }
}

/// The value that a stream that is held back reads, of a buffer that went back before and is written by the
/// `next` stream.
fn seen_by_the_first(scene: &Scene, next: usize) -> u8 {
    let Scene { device, streams, .. } = scene;
    let first = &streams[0];
    let result = device.allocate(&AllocationRequest::new(KIB, Placement::Device)).expect("memory");
    let mut buffer = scene.allocate(KIB, 0);
    device.fill(first, buffer.on_mut(first).expect("a region"), 0xAA).expect("queued");
    device.synchronize(first).expect("no fault");
    let open = close_gate(first);
    let read = buffer.on(first).expect("a region");
    device.copy(first, read, RegionMut::whole(&result, first)).expect("queued");
    let _rest = scene.take_all();
    let (offset, used) = (offsets(&scene.arena), scene.arena.used());
    drop(buffer);
    assert_eq!(scene.arena.used(), used - KIB, "it went back");
    let mut buffer = scene.allocate(KIB, next);
    assert_eq!(offsets(&scene.arena), offset, "the same bytes");
    device.fill(&streams[next], buffer.on_mut(&streams[next]).expect("a region"), 0xBB).expect("queued");
    drop(open);
    streams.iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    let mut seen = [0; KIB as usize];
    device.download(first, Region::whole(&result, first), &mut seen).expect("no fault");
    seen[0]
}

/// Where live blocks are.
fn offsets(arena: &DeviceArena<HostDevice>) -> Vec<u64> {
    let is_live =
        |span: &&vrampool::arena::Span| matches!(span.state, vrampool::arena::SpanState::Live { .. });
    arena.blocks().iter().filter(is_live).map(|span| span.offset).collect()
}

#[test]
fn one_stream_never_waits_and_another_waits_for_the_last() {
    for (warm, next, waits) in [(0, 0, 0), (0, 1, 1), (4, 0, 0), (4, 1, 1)] {
        let scene = scene();
        scene.warm(warm, 0);
        assert_eq!(seen_by_the_first(&scene, next), 0xAA);
        assert_eq!(scene.pool.stats().stream_waits, waits, "{warm} records, then stream {next}");
    }
}

/// The next use of freed bytes waits for the stream that freed them, though the pool has a record of that stream.
#[test]
fn bytes_that_went_to_another_stream_and_back_are_waited_for() {
    let scene = scene();
    scene.warm(2, 1);
    scene.warm(2, 0);
    assert_eq!(seen_by_the_first(&scene, 1), 0xAA);
    assert_eq!(seen_by_the_first(&scene, 2), 0xAA);
}

/// Behind a wait lies all that the other stream did before it, and nothing that it does later.
#[test]
fn one_wait_is_for_all_that_was_freed_before_it() {
    let scene = scene();
    scene.warm(8, 0);
    let open = close_gate(&scene.streams[0]);
    let _rest = scene.leave(8);
    let waits = || scene.pool.stats().stream_waits;
    let others: Vec<_> = (0..8).map(|_| scene.allocate(KIB, 1)).collect();
    assert_eq!(waits(), 1, "eight blocks that the first stream freed");
    drop(others);
    let back: Vec<_> = (0..8).map(|_| scene.allocate(KIB, 0)).collect();
    assert_eq!(waits(), 2, "the other way too");
    drop((back, open));
    assert_eq!(seen_by_the_first(&scene, 1), 0xAA, "freed after the wait");
    assert_eq!(waits(), 3);
}

#[test]
fn a_reader_is_waited_for_too() {
    let scene = scene();
    let [writer, reader, next] = &scene.streams;
    scene.warm(2, 0);
    let buffer = scene.allocate(KIB, 0);
    let other = scene.arena.largest_free_block(Zone::Dynamic);
    let _other = scene.arena.allocate(other, next).expect("all that is free besides");
    buffer.used_on(reader).expect("no fault");
    let _not_done = [close_gate(reader), close_gate(writer)];
    drop(buffer);
    let waits = scene.pool.stats().stream_waits;
    drop(scene.pool.allocate(KIB, next).expect("memory"));
    assert_eq!(scene.pool.stats().stream_waits, waits + 2, "for the reader and for {writer:?}");
}

#[test]
fn a_wait_that_fails_is_an_error_and_the_next_one_waits() {
    let scene = scene();
    scene.warm(2, 0);
    let open = close_gate(&scene.streams[0]);
    let rest = scene.leave(2);
    let used = scene.arena.used();
    for call in [Call::Record, Call::Wait] {
        scene.device.faults().fail_all(call, BackendError::driver("wait", 5, "refused"));
        let refused = scene.pool.allocate(KIB, &scene.streams[1]);
        scene.device.faults().clear();
        assert!(refused.is_err(), "{call:?}");
        let stats = scene.pool.stats();
        assert_eq!((stats.live_buffers, stats.held_bytes, scene.arena.used()), (0, 0, used));
    }
    drop((rest, open));
    assert_eq!(seen_by_the_first(&scene, 1), 0xAA);
    assert_eq!(scene.pool.stats().failed.by_backend, 2);
}

#[test]
fn records_keep_neither_pool_nor_arena() {
    let Scene { device, arena, pool, .. } = {
        let scene = scene();
        scene.warm(8, 0);
        scene
    };
    let last = pool.allocate(KIB, &device.create_stream().expect("a stream")).expect("memory");
    drop((pool, arena));
    assert_eq!(device.memory_info().expect("no fault").free_bytes, 48 * MIB, "a buffer keeps it");
    drop(last);
    assert_eq!(device.memory_info().expect("no fault").free_bytes, 64 * MIB);
}

#[test]
fn an_arena_that_is_full_leaves_the_pool_whole() {
    let scene = scene();
    scene.warm(2, 0);
    let others: ArenaBuffer<_> = scene.arena.allocate(16 * MIB, &scene.streams[0]).expect("all of it");
    assert!(scene.pool.allocate(KIB, &scene.streams[0]).is_err_and(|error| error.is_out_of_memory()));
    drop(others);
    drop(scene.allocate(KIB, 0));
    let stats = scene.pool.stats();
    assert_eq!((stats.live_buffers, stats.held_bytes, stats.source.allocations), (0, 0, stats.source.frees));
}
