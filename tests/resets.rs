//! An arena whose blocks a pool keeps is not reset: a reset, and a resize that is one, is refused while the pool has
//! a handle or a live buffer. Pages of an arena that is reset are released before others take their ledger.

#[allow(dead_code, reason = "other tests use all of it")]
#[path = "detached/mod.rs"]
mod detached;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread;
use vrampool::Ledger;
use vrampool::arena::{ArenaError, DeviceArena};
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Backend, Buffer, Error, Pool, SizeClasses, Source};
use vrampool_test_support::AuditDevice;

type Device = AuditDevice<HostDevice>;

const KIB: u64 = 1024;
const RANGE: u64 = 256 * KIB;
const PAGE: u64 = 4 * KIB;
const PAGES: u64 = 8 * PAGE;

struct Scene {
    stream: HostStream,
    arena: DeviceArena<Device>,
    pool: Pool<Device>,
}

/// A pool over an arena; one that grows, if the device can.
fn scene(is_growing: bool, magazine_bytes: u64) -> Option<Scene> {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 24).granularity(4 * KIB).build());
    if is_growing && device.virtual_memory().is_none() {
        return None;
    }
    let stream = device.create_stream().expect("a stream");
    let builder = DeviceArena::builder(&device).limit(RANGE);
    let arena = if is_growing { builder.growing() } else { builder }.build().expect("an arena");
    let source = if is_growing { Source::Virtual } else { Source::Arena };
    let pool = Pool::builder(&device)
        .source(source)
        .arena(&arena)
        .size_classes(SizeClasses::Multiple(KIB))
        .cached_class(16 * KIB)
        .magazine_bytes(magazine_bytes)
        .build()
        .expect("a pool");
    Some(Scene { stream, arena, pool })
}

fn scenes() -> impl Iterator<Item = Scene> {
    [(false, 0), (false, 64 * KIB), (true, 0), (true, 64 * KIB)]
        .into_iter()
        .filter_map(|(is_growing, magazine_bytes)| scene(is_growing, magazine_bytes))
}

impl Scene {
    fn buffer(&self, kib: u64) -> Buffer<Device> {
        self.pool.allocate(kib * KIB, &self.stream).expect("memory")
    }

    /// Fails each reset, and changes nothing.
    fn refuses(&self) {
        let (used, reserved) = (self.arena.used(), self.arena.reserved_bytes());
        let check = |outcome: Result<(), Error>| {
            let error = outcome.expect_err("a pool is over it");
            assert_eq!(error.arena(), Some(&ArenaError::ServesPool));
            assert!(error.to_string().contains("drop the pool and its buffers"), "{error}");
        };
        check(self.arena.reset());
        if !self.arena.is_growing() {
            check(self.arena.resize(RANGE / 2));
        }
        assert_eq!((self.arena.used(), self.arena.reserved_bytes()), (used, reserved));
    }
}

#[test]
fn an_arena_under_a_pool_is_not_reset() {
    for scene in scenes() {
        scene.refuses();
        let mut buffer = scene.buffer(4);
        buffer.write(&[7; 4096], &scene.stream).expect("queued");
        drop(scene.buffer(1));
        scene.refuses();
        scene.pool.close();
        scene.refuses();
        let Scene { pool, stream, arena, .. } = &scene;
        let mut bytes = [0; 4096];
        buffer.read(&mut bytes, stream).expect("it is live");
        assert_eq!((bytes, pool.arena().expect("its arena").used()), ([7; 4096], arena.used()));
    }
}

/// A buffer that outlives its pool's handles is live. What threads keep idle of a pool without handles is not.
#[test]
fn an_arena_is_reset_once_its_pool_and_its_buffers_are_dropped() {
    for scene in scenes() {
        let ((go, gate), (done, is_done)) = (channel::<()>(), channel::<()>());
        let Scene { stream, arena, pool, .. } = scene;
        let other = thread::spawn({
            let (pool, stream) = (pool.clone(), stream.clone());
            move || {
                drop([1, 1, 1].map(|kib| pool.allocate(kib * KIB, &stream).expect("memory")));
                drop(pool);
                done.send(()).expect("the receiver waits");
                gate.recv().expect("the signal");
            }
        });
        is_done.recv().expect("it works");
        let buffer = pool.allocate(KIB, &stream).expect("memory");
        drop(pool);
        assert_eq!(arena.reset().expect_err("a buffer is live").arena(), Some(&ArenaError::ServesPool));
        drop(buffer);
        // The other thread has not returned its magazines.
        arena.reset().expect("nothing is live");
        let whole = arena.allocate(RANGE, &stream).expect("all of it");
        go.send(()).expect("it listens");
        other.join().expect("no panic");
        assert_eq!(arena.used(), RANGE, "it frees nothing of the new owner's");
        drop(whole);
        if !arena.is_growing() {
            arena.resize(RANGE / 2).expect("memory");
        }
    }
}

#[test]
fn buffers_that_a_reset_made_stale_free_nothing() {
    let device = HostDevice::builder().granularity(PAGE).build();
    let streams = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let builder = || DeviceArena::builder(&device).limit(RANGE);
    for arena in [builder(), builder().growing()].map(|builder| builder.build().expect("an arena")) {
        let allocate = |at: usize| arena.allocate(KIB, &streams[at % 2]).expect("memory");
        let buffers: Vec<_> = (0..40).map(allocate).collect();
        arena.reset().expect("no pool is over it");
        let after = allocate(0);
        drop(buffers);
        assert_eq!(arena.used(), after.capacity());
    }
}

/// How often another arena was refused [`PAGES`] of memory: once behind each release of `act`.
fn refusals(device: &Device, other: &DeviceArena<Device>, stream: &HostStream, act: impl FnOnce()) -> u64 {
    let refused = Arc::new(AtomicU64::new(0));
    device.on_drop({
        let (refused, other, stream) = (Arc::clone(&refused), other.clone(), stream.clone());
        move || _ = refused.fetch_add(u64::from(other.allocate(PAGES, &stream).is_err()), Relaxed)
    });
    act();
    device.forget_hook();
    refused.load(Relaxed)
}

/// An arena falls asleep, does not wake, and is reset, where a wake that could be neither finished nor taken
/// back left pages: until the last page is released no other arena takes their part of the ledger.
#[test]
fn a_ledgers_bytes_are_there_again_behind_the_pages_of_a_detached_arena() {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 24).granularity(PAGE).build());
    if device.virtual_memory().is_none() {
        return;
    }
    let stream = device.create_stream().expect("a stream");
    let ledger = Ledger::new(PAGES);
    let arena = || {
        let builder = DeviceArena::builder(&device).growing().limit(RANGE).piece_bytes(PAGE);
        builder.within(&ledger).build().expect("an arena")
    };
    let (arena, other) = (arena(), arena());
    let block = arena.allocate(PAGES, &stream).expect("memory");
    let faults = device.inner().faults();
    let detach = || _ = detached::detach(&arena).expect("no fault").expect("attached");
    assert_eq!(refusals(&device, &other, &stream, detach), 8, "one for each page");
    let attach = || {
        faults.fail_nth(Call::Map, 3);
        assert!(arena.attach().is_err());
        faults.clear();
    };
    assert_eq!(refusals(&device, &other, &stream, attach), 8, "one for each page");
    assert_eq!((device.taken(), ledger.charged()), (0, 0));
    faults.fail_nth(Call::Map, 3);
    faults.fail_nth(Call::Unmap, 1);
    assert!(arena.attach().is_err());
    faults.clear();
    assert_eq!((device.taken(), ledger.charged()), (PAGES, PAGES), "detached with memory");
    let reset = || arena.reset().expect("no fault");
    assert_eq!(refusals(&device, &other, &stream, reset), 8, "one for each page");
    assert_eq!((device.taken(), device.peak(), ledger.charged()), (0, PAGES, 0));
    assert!(other.allocate(PAGES, &stream).is_ok());
    drop(block);
}
