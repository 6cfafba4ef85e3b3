//! A private child over virtual memory: a twin knows which bytes are live and which were ever mapped. Whatever happens
//! beside, mapped memory stays at its addresses, no live bytes are served again, and memory at an address is served if
//! it is free.

use crate::{Device, KIB, device, device_and_stream};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vrampool::arena::DeviceArena;
use vrampool::backend::StreamId;
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, BackendError, Buffer, Error, Pool, Shortage, SizeClasses, Source, Stream, internal};
use vrampool_test_support::{AuditDevice, close_gate};

const PAGE: u64 = 64 * KIB;
const CALLS: [Call; 4] = [Call::CreatePhysical, Call::Map, Call::Unmap, Call::Record];

struct Scene {
    device: Device,
    pool: Pool<Device>,
    child: Pool<Device>,
    live: BTreeMap<u64, (Buffer<Device>, u8)>,
    /// Runs of mapped addresses.
    mapped: Vec<(u64, u64)>,
    captured: Vec<StreamId>,
    /// What captured streams freed since.
    freed: Vec<(u64, u64, StreamId)>,
}

impl Scene {
    fn new() -> Self {
        let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build());
        let builder = Pool::builder(&device).source(Source::Virtual).limit(256 * PAGE);
        let pool = builder.build().expect("a pool");
        let child = pool.child("graph").private(true).build().expect("a pool");
        let (live, mapped, freed) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { device, pool, child, live, mapped, captured: Vec::new(), freed }
    }

    fn streams(&self) -> [<Device as Backend>::Stream; 2] {
        [(); 2].map(|()| self.device.create_stream().expect("a stream"))
    }

    fn capture(&mut self, streams: &[<Device as Backend>::Stream], count: usize) {
        let captured: Vec<_> = streams.iter().take(count).collect();
        self.device.capture(&captured);
        self.captured = captured.iter().map(|stream| stream.id()).collect();
        self.freed.clear();
    }

    fn arena(&self) -> &DeviceArena<Device> {
        self.child.arena().expect("it is virtual")
    }

    fn is_free(&self, start: u64, end: u64) -> bool {
        let before = self.live.range(..end).next_back();
        self.mapped.iter().any(|run| run.0 <= start && end <= run.1)
            && before.is_none_or(|(at, (buffer, _))| at + buffer.capacity() <= start)
    }

    /// Notes a block that was served, and writes to it.
    fn add(&mut self, mut buffer: Buffer<Device>, value: u8, stream: &<Device as Backend>::Stream) {
        self.look();
        let start = buffer.address().expect("the host has addresses");
        let end = start + buffer.capacity();
        assert!(self.is_free(start, end), "it is live, or not mapped");
        let is_of_another = |of: &&(u64, u64, StreamId)| of.0 < end && start < of.1 && of.2 != stream.id();
        assert_eq!(self.freed.iter().find(is_of_another), None, "a captured stream used it, not {start:x?}");
        buffer.fill(value, stream).expect("its memory");
        self.live.insert(start, (buffer, value));
    }

    /// What is mapped stays.
    fn look(&mut self) {
        let base = self.arena().base().expect("the host has addresses");
        let now: Vec<_> =
            self.arena().mapped().iter().map(|run| (base + run.start, base + run.end)).collect();
        for run in &self.mapped {
            assert!(
                now.iter().any(|of| of.0 <= run.0 && run.1 <= of.1),
                "{run:x?} is mapped no more: {now:x?}"
            );
        }
        self.mapped = now;
    }

    fn take(&mut self, which: usize, stream: &<Device as Backend>::Stream) {
        let Some(&at) = self.live.keys().nth(which % self.live.len().max(1)) else { return };
        let Some((buffer, value)) = self.live.remove(&at) else { return };
        if !self.captured.is_empty() {
            // A region of another stream would wait for it.
            let of = Some(buffer.stream_id()).filter(|of| self.captured.contains(of));
            self.freed.extend(of.map(|of| (at, at + buffer.capacity(), of)));
            return;
        }
        let mut read = vec![0; buffer.len().min(16) as usize];
        buffer.read(&mut read, stream).expect("its memory");
        assert!(read.iter().all(|&byte| byte == value));
    }
}

fn is_capture(error: &Error) -> bool {
    matches!(error, Error::Capture { .. })
}

fn run(mut seed: u64, steps: usize) -> [u64; 3] {
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let mut scene = Scene::new();
    let streams = scene.streams();
    let (mut known, mut beside, mut served) = (Vec::new(), Vec::new(), [0; 3]);
    for step in 0..steps {
        let (stream, which, value) = (&streams[next() as usize % 2], next() as usize, step as u8);
        let bytes = 1 + match next() % 4 {
            0 => next() % 2000,
            1 => next() % (20 * KIB),
            _ => next() % (6 * PAGE),
        };
        let is_faulty = next() % 16 == 0;
        if is_faulty {
            let refused = BackendError::out_of_memory(1, None);
            scene.device.inner().faults().fail_all(CALLS[which % 4], refused);
        }
        let before = scene.mapped.clone();
        match next() % 17 {
            0..=4 => match scene.child.allocate(bytes, stream) {
                Ok(buffer) => {
                    scene.device.inner().faults().clear();
                    known.push((buffer.address().expect("the host has addresses"), bytes));
                    scene.add(buffer, value, stream);
                    served[0] += 1;
                }
                Err(error) => assert!(
                    is_faulty || error.is_out_of_memory() || !scene.captured.is_empty() && is_capture(&error),
                    "{error}"
                ),
            },
            5..=8 => {
                scene.device.inner().faults().clear();
                scene.take(which, stream);
            }
            9..=10 => {
                scene.device.inner().faults().clear();
                let (mut at, of) = known.get(which % known.len().max(1)).copied().unwrap_or((0, 1));
                at += [0, 0, 0, 256, 512 * KIB, 1][next() as usize % 6];
                let class = scene.child.class_of(of).expect("a class");
                scene.look();
                let is_free = at % 256 == 0 && scene.is_free(at, at + class);
                let buffer = internal::allocate_at(&scene.child, at, of, stream);
                if let Err(error) = &buffer {
                    assert!(is_free && (error.is_out_of_memory() || is_capture(error)), "{error}");
                    continue;
                }
                let buffer = buffer.expect("the limit has room");
                assert_eq!(buffer.is_some(), is_free, "{of} bytes at {at:#x}");
                if let Some(buffer) = buffer {
                    assert_eq!((buffer.address(), buffer.capacity()), (Some(at), class));
                    scene.add(buffer, value, stream);
                    served[1] += 1;
                }
            }
            // An earlier state returns: all is freed, and what was live then is live at its addresses.
            11 if next() % 4 == 0 && scene.captured.is_empty() => {
                scene.device.inner().faults().clear();
                scene.pool.set_limit(256 * PAGE).expect("no share");
                let state: Vec<_> = scene.live.iter().map(|(&at, (buffer, _))| (at, buffer.len())).collect();
                while !scene.live.is_empty() {
                    scene.take(0, stream);
                }
                let others: Vec<_> = (0..which % 8).map(|_| scene.child.allocate(bytes, stream)).collect();
                drop(others);
                for (at, bytes) in state {
                    let buffer = internal::allocate_at(&scene.child, at, bytes, stream).expect("no fault");
                    scene.add(buffer.expect("it is free"), value, stream);
                    served[2] += 1;
                }
            }
            // Whatever asks for memory gets none of it.
            11 => drop(scene.pool.trim_to(which as u64 % 4 * PAGE)),
            12 => scene.pool.set_limit((which as u64 % 256 + 1) * PAGE).expect("no share"),
            13 => scene.pool.set_limit(256 * PAGE).expect("no share"),
            14 if next() % 4 == 0 && scene.captured.is_empty() => {
                scene.device.inner().faults().clear();
                scene.pool.set_limit(256 * PAGE).expect("no share");
                beside.clear();
                let unmapped =
                    scene.arena().detach(Duration::ZERO).expect("no region").expect("attached").unmap();
                unmapped.expect("no fault").commit(|_| ());
                let error = scene.child.allocate(bytes, stream).expect_err("it is asleep");
                assert!(matches!(error, Error::Asleep { .. }), "{error}");
                let _freed = scene.live.pop_first();
                scene.arena().attach().expect("memory").expect("detached").commit();
                // The contents are not kept.
                scene
                    .live
                    .values_mut()
                    .for_each(|(buffer, value)| buffer.fill(*value, stream).expect("awake"));
            }
            14 => beside.extend(scene.pool.allocate(bytes, stream)),
            15 => beside.clear(),
            _ => scene.capture(&streams, which % 5 / 2),
        }
        scene.device.inner().faults().clear();
        scene.look();
        let maps = scene.captured.len() < 2 || scene.mapped == before;
        assert!(maps, "a captured stream asks the driver for nothing");
    }
    scene.capture(&streams, 0);
    scene.live.clear();
    streams.iter().for_each(|stream| scene.device.synchronize(stream).expect("no fault"));
    let figures = (scene.child.stats().live_bytes, scene.device.inner().races(), scene.device.forbidden());
    assert_eq!(figures, (0, 0, 0));
    let Scene { device, pool, child, .. } = scene;
    drop((child, beside, pool));
    let info = device.memory_info().expect("figures");
    assert_eq!(info.free_bytes, info.total_bytes, "its end releases it");
    served
}

#[test]
fn a_private_child_and_its_twin_agree() {
    let mut served = [0; 3];
    for seed in 0..4 {
        let more = run(seed, 4000);
        served.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    assert!(served.iter().all(|&count| count > 150), "{served:?}");
}

fn at(buffer: &Buffer<Device>) -> u64 {
    buffer.address().expect("the host has addresses")
}

/// Neither does the launch take what is free: a request beside it may get part of that, and the rest is the graph's.
#[test]
fn a_graph_is_a_user_of_free_memory_of_which_another_request_gets_a_part() {
    let scene = Scene::new();
    let [own, launched] = scene.streams();
    let blocks = [(); 3].map(|()| scene.child.allocate(3 * PAGE, &own).expect("memory"));
    let places = [at(&blocks[0]), at(&blocks[2])];
    let [first, _wall, last] = blocks;
    let _gate = close_gate(&own);
    drop((first, last));
    let peak = scene.arena().peak_used();
    let (child, stream, is_first) = (scene.child.clone(), own.clone(), AtomicBool::new(true));
    let kept = Arc::new(Mutex::new(None));
    let beside = Arc::clone(&kept);
    scene.device.before_capture_query(move || {
        if is_first.swap(false, Relaxed) {
            let block = internal::allocate_at(&child, places[1], PAGE, &stream).expect("no fault");
            *beside.lock().expect("no panic") = block;
        }
    });
    scene.child.used_on(&launched).expect("no fault");
    scene.device.forget_hook();
    assert!(kept.lock().expect("no panic").take().is_some(), "it was free");
    assert_eq!(scene.arena().peak_used(), peak);
    for place in [places[0], places[1] + PAGE] {
        let [other] = [(); 1].map(|()| scene.device.create_stream().expect("a stream"));
        let waits = scene.arena().stream_waits();
        let rest = internal::allocate_at(&scene.child, place, PAGE, &other).expect("no fault");
        assert_eq!(scene.arena().stream_waits(), waits + 2, "the earlier user, and the graph");
        drop(rest);
    }
}

/// An arena that the program made is the child's as well.
#[test]
fn a_private_child_over_an_arena_of_the_program_orders_graphs_too() {
    let scene = Scene::new();
    let [own, launched] = scene.streams();
    let arena = DeviceArena::builder(&scene.device).growing().limit(16 * PAGE).build().expect("an arena");
    let child = scene.pool.child("of an arena").arena(&arena).private(true).build().expect("a pool");
    let block = child.allocate(3 * PAGE, &own).expect("memory");
    let (place, gate) = (at(&block), close_gate(&own));
    drop(block);
    child.used_on(&launched).expect("no fault");
    assert_eq!(arena.stream_waits(), 1);
    let again = internal::allocate_at(&child, place, 3 * PAGE, &own).expect("no fault").expect("it is free");
    assert_eq!((at(&again), arena.stream_waits()), (place, 2));
    drop(gate);
}

/// Idle memory elsewhere makes room for memory at an address, as for any request.
#[test]
fn memory_at_an_address_has_the_room_of_any_request() {
    let scene = Scene::new();
    let [own, _] = scene.streams();
    let arena = DeviceArena::builder(&scene.device).growing().limit(16 * PAGE).build().expect("an arena");
    scene.pool.set_limit(5 * PAGE).expect("no share");
    let child = scene.pool.child("of an arena").arena(&arena).private(true).build().expect("a pool");
    let place = at(&child.allocate(3 * PAGE, &own).expect("memory"));
    drop(scene.pool.allocate(4 * PAGE, &own).expect("memory"));
    assert_eq!(scene.pool.stats().idle_bytes, 4 * PAGE);
    let again = internal::allocate_at(&child, place, 3 * PAGE, &own).expect("idle memory makes room");
    assert_eq!((again.map(|block| at(&block)), scene.pool.stats().idle_bytes), (Some(place), 0));
    child.close();
    let error = internal::allocate_at(&child, place, 3 * PAGE, &own).expect_err("it is closed");
    assert!(matches!(error, Error::Closed), "{error}");
}

/// Live memory of the pool makes room for what replaces it: the limit that refuses is the one above.
#[test]
fn a_restore_names_the_limit_without_room() {
    let (device, stream) = device_and_stream();
    let builder = Pool::builder(&device).size_classes(SizeClasses::EXACT);
    let pool = builder.limit(128 * KIB).build().expect("a pool");
    let child = pool.child("graph").limit(100 * KIB).build().expect("a pool");
    let _live =
        [(&pool, 64), (&child, 60)].map(|(pool, kib)| pool.allocate(kib * KIB, &stream).expect("memory"));
    internal::check_room(&child, [64 * KIB].into_iter()).expect("all that the other block leaves");
    for (bytes, limit) in [(65 * KIB, 128 * KIB), (101 * KIB, 100 * KIB)] {
        let error = internal::check_room(&child, [bytes].into_iter()).expect_err("too much");
        let shortage = error.out_of_memory().map(|error| &error.shortage);
        assert!(matches!(shortage, Some(Shortage::Limit(of)) if *of == limit), "{bytes}: {error}");
    }
}

/// Of memory of the driver, the block at the address may be of a larger class, and of another stream.
#[test]
fn a_borrowed_block_is_served_at_its_address_to_the_stream_that_asks() {
    let device = device();
    let [own, other] = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let classes = SizeClasses::Geometric { per_doubling: 8, from: 4 * KIB };
    let builder = Pool::builder(&device).source(Source::Direct).size_classes(classes);
    let pool = builder.build().expect("a pool");
    let child = pool.child("graph").private(true).build().expect("a pool");
    let larger = child.allocate(20 * KIB, &own).expect("memory");
    let (place, class) = (at(&larger), larger.capacity());
    let live = child.allocate(16 * KIB, &own).expect("memory");
    drop(larger);
    let borrowed = child.allocate(18 * KIB, &own).expect("memory");
    assert_eq!((at(&borrowed), borrowed.capacity()), (place, class));
    let (gate, stats) = (close_gate(&own), child.stats());
    drop(borrowed);
    let again =
        internal::allocate_at(&child, place, 18 * KIB, &other).expect("no fault").expect("it is idle");
    assert_eq!((at(&again), again.capacity(), again.stream_id()), (place, class, other.id()));
    let after = child.stats();
    assert_eq!(after.stream_waits, stats.stream_waits + 1, "it waits for the earlier user");
    assert_eq!(
        (after.live_bytes, after.requested_bytes, after.live_buffers, after.idle_bytes),
        (stats.live_bytes, stats.requested_bytes, stats.live_buffers, stats.idle_bytes)
    );
    drop((gate, live, again));
    assert_eq!(child.stats().live_bytes, 0);
}

/// A launch on another stream waits for earlier work on what is free, and the next request waits for the launch.
#[test]
fn a_private_child_grows_with_a_limit_that_is_raised() {
    let Scene { device, pool, .. } = Scene::new();
    pool.set_limit(4 * PAGE).expect("nothing is live");
    let child = pool.child("grows").private(true).build().expect("a pool");
    pool.set_limit(64 * PAGE).expect("more");
    let stream = device.create_stream().expect("a stream");
    let _all = [(); 32].map(|()| child.allocate(2 * PAGE, &stream).expect("all of the limit"));
}

#[test]
fn a_graph_is_a_user_of_what_a_private_child_has_free() {
    let scene = Scene::new();
    let [own, launched] = scene.streams();
    for of in [PAGE / 8, 3 * PAGE] {
        let mut block = scene.child.allocate(of, &own).expect("memory");
        let at = block.address();
        let gate = close_gate(&own);
        block.fill(1, &own).expect("queued");
        drop(block);
        let waits = scene.child.stats().stream_waits;
        scene.child.used_on(&launched).expect("no fault");
        assert_eq!(scene.child.stats().stream_waits, waits + 1);
        let place = at.expect("the host has addresses");
        let again = internal::allocate_at(&scene.child, place, of, &own).expect("no fault");
        assert_eq!(scene.child.stats().stream_waits, waits + 2);
        drop((again, gate));
        scene.device.synchronize(&launched).expect("no fault");
    }
}
