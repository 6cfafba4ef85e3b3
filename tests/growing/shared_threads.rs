//! Threads with a stream each that pass on what they wrote, while another thread does whatever can be done to
//! the arena.

use super::{PAGE, pattern};
use crate::detached::{attach, detach};
use fastrand::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use vrampool::arena::Zone::{Dynamic, Stable};
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::host::{HostDevice, HostMemory, HostStream};
use vrampool::{Backend, Buffer, Error, Pool, Region, RegionMut, Source};

/// A block of an arena, or a pool's buffer; while that is asleep nothing gets at it.
trait Passed: Send {
    fn on(&self, stream: &HostStream) -> Result<Region<'_, HostMemory>, Error>;
    fn on_mut(&mut self, stream: &HostStream) -> Result<RegionMut<'_, HostMemory>, Error>;
    fn record_stream(&self, stream: &HostStream) -> Result<(), Error>;
}

macro_rules! passed {
    ($passed:ty) => {
        impl Passed for $passed {
            fn on(&self, stream: &HostStream) -> Result<Region<'_, HostMemory>, Error> {
                self.on(stream)
            }
            fn on_mut(&mut self, stream: &HostStream) -> Result<RegionMut<'_, HostMemory>, Error> {
                self.on_mut(stream)
            }
            fn record_stream(&self, stream: &HostStream) -> Result<(), Error> {
                self.record_stream(stream)
            }
        }
    };
}

passed!(ArenaBuffer<HostDevice>);
passed!(Buffer<HostDevice>);

struct Scene<L> {
    device: HostDevice,
    streams: [HostStream; 4],
    passed: Mutex<Vec<(L, u64)>>,
    spoilt: Arc<AtomicU64>,
    /// Nothing moves, so that a stream may be recorded.
    is_growing: bool,
}

impl<L: Passed> Scene<L> {
    fn new(is_growing: bool) -> Self {
        let (device, streams) = super::host();
        Self { device, streams, passed: Mutex::default(), spoilt: Arc::default(), is_growing }
    }

    /// Work on a stream finds what another one wrote.
    fn read(&self, block: &L, tag: u64, stream: &HostStream, is_recorded: bool) {
        let (writer, spoilt) = (&self.streams[(tag >> 32) as usize], Arc::clone(&self.spoilt));
        let kernel = move |[words]: [&[u64]; 1], []: [&mut [u64]; 0]| {
            let wrong = words.iter().filter(|&&word| word != tag).count() as u64;
            spoilt.fetch_add(wrong, Ordering::Relaxed);
        };
        let region = match is_recorded {
            true => block.on(writer).map(|of_writer| {
                self.device.wait(stream, &self.device.record(writer).expect("no fault")).expect("queued");
                block.record_stream(stream).expect("no fault");
                of_writer.for_stream(stream)
            }),
            false => block.on(stream),
        };
        if let Ok(region) = region {
            stream.launch([region], [], kernel).expect("queued");
        }
    }

    fn write(block: &mut L, tag: u64, stream: &HostStream) -> Result<(), Error> {
        let kernel = move |[]: [&[u64]; 0], [words]: [&mut [u64]; 1]| words.fill(tag);
        stream.launch([], [block.on_mut(stream)?], kernel).expect("queued");
        Ok(())
    }

    /// The work of one thread.
    fn work(&self, me: usize, random: &mut Rng, allocate: impl Fn(u64, &HostStream) -> Result<L, Error>) {
        let stream = &self.streams[me];
        for number in 0..400 {
            if random.u8(..4) == 0 {
                let pause = Duration::from_micros(random.u64(..300));
                let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| thread::sleep(pause);
                stream.launch([], [], kernel).expect("queued");
            }
            let other = self.passed.lock().expect("no panic").pop();
            if let Some((block, tag)) = other {
                self.read(&block, tag, stream, self.is_growing && random.u8(..8) > 0);
            }
            // Some that nothing else uses, one after the other.
            for _ in 0..random.u8(..3) {
                if let Ok(mut own) = allocate(2 * PAGE, stream) {
                    let _ = Self::write(&mut own, 7, stream);
                }
            }
            let is_small = random.u8(..4) == 0;
            let bytes = if is_small { 8 * random.u64(1..PAGE / 8) } else { random.u64(1..6) * PAGE };
            let Ok(mut block) = allocate(bytes, stream) else {
                drop(self.passed.lock().expect("no panic").drain(..).collect::<Vec<_>>());
                continue;
            };
            let tag = (me as u64) << 32 | number;
            if Self::write(&mut block, tag, stream).is_ok() {
                self.passed.lock().expect("no panic").push((block, tag));
            }
            if random.u8(..40) == 0 {
                self.device.synchronize(stream).expect("no fault");
            }
        }
    }

    /// Four threads that work, and one that changes what they work on until they are done.
    fn run(
        &self,
        allocate: impl Fn(u64, &HostStream) -> Result<L, Error> + Sync,
        change: impl Fn(&mut Rng) + Sync,
    ) {
        let (stop, allocate, change) = (AtomicBool::new(false), &allocate, &change);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|me| scope.spawn(move || self.work(me, &mut Rng::with_seed(me as u64), allocate)))
                .collect();
            scope.spawn(|| {
                let mut random = Rng::with_seed(99);
                while !stop.load(Ordering::Relaxed) {
                    change(&mut random);
                }
            });
            let worked: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            stop.store(true, Ordering::Relaxed);
            worked.into_iter().for_each(|worked| worked.expect("no panic"));
        });
        self.streams.iter().for_each(|stream| self.device.synchronize(stream).expect("no fault"));
        let spoilt = self.spoilt.load(Ordering::Relaxed);
        assert_eq!((spoilt, self.device.races()), (0, 0), "growing: {}", self.is_growing);
        self.passed.lock().expect("no panic").clear();
    }
}

fn change(arena: &DeviceArena<HostDevice>, random: &mut Rng) {
    match random.u8(..5) {
        0 => _ = arena.release(random.u64(..20) * PAGE),
        1 => _ = arena.decay(),
        2 if arena.is_growing() => {
            if let Ok(Some(contents)) = detach(arena) {
                _ = attach(arena, &contents).expect("there is memory");
            }
        }
        3 => _ = arena.available(Dynamic),
        _ => thread::sleep(Duration::from_micros(200)),
    }
}

#[test]
fn threads_share_blocks_while_the_arena_changes() {
    for (is_growing, pieces) in [(true, PAGE), (true, u64::MAX), (false, u64::MAX)] {
        let scene = Scene::new(is_growing);
        let builder = DeviceArena::builder(&scene.device).limit(48 * PAGE);
        let builder = if is_growing { builder.growing().piece_bytes(pieces) } else { builder };
        let (arena, moved) = (builder.build().expect("an arena"), AtomicU64::new(0));
        scene.run(
            |bytes, stream| {
                if bytes != 5 * PAGE {
                    return arena.allocate(bytes, stream);
                }
                let mut block = arena.allocate(PAGE, stream)?;
                block.write(&pattern(7, PAGE), stream)?;
                block.resize(bytes, stream)?;
                let mut kept = vec![0; PAGE as usize];
                block.read(&mut kept, stream)?;
                assert!(kept == pattern(7, PAGE), "a resize keeps the contents");
                Ok(block)
            },
            |random| {
                match random.u8(..4) {
                    0 if is_growing => _ = arena.resize(random.u64(40..60) * PAGE),
                    1 => {
                        let report = arena.compact(u64::MAX, &scene.streams[0], |_| {});
                        moved.fetch_add(report.map_or(0, |report| report.moved_bytes), Ordering::Relaxed);
                    }
                    2 => _ = arena.synchronize_freed(&scene.streams[random.usize(..4)]),
                    _ => change(&arena, random),
                }
                assert!(!is_growing || arena.reserved_bytes() <= 60 * PAGE);
            },
        );
        assert!(is_growing || moved.into_inner() > 0, "nothing moved");
        assert_eq!(arena.used(), 0);
        arena.release(0).expect("no fault");
        assert!(!is_growing || arena.reserved_bytes() == 0);
    }
}

/// A pool's misses and frees go the short way.
#[test]
fn threads_share_buffers_of_a_pool_while_its_arena_changes() {
    for source in [Source::Virtual, Source::Arena] {
        let scene = Scene::new(source == Source::Virtual);
        let builder = Pool::builder(&scene.device).source(source).limit(48 * PAGE).cached_class(0);
        let pool = builder.build().expect("a pool");
        let arena = pool.arena().expect("it has one").clone();
        scene.run(
            |bytes, stream| pool.allocate(bytes, stream),
            |random| {
                match random.u8(..4) {
                    0 => drop(pool.trim().expect("a trim")),
                    1 => _ = pool.stats(),
                    // Also with the range's second part, and refused while more is in use.
                    2 if source == Source::Virtual => {
                        _ = pool.set_limit(random.bool().then(|| random.u64(20..800) * PAGE));
                    }
                    _ => change(&arena, random),
                }
                assert!(source == Source::Virtual || arena.reserved_bytes() <= 48 * PAGE);
            },
        );
        assert_eq!((arena.used(), pool.stats().live_bytes), (0, 0));
        drop(pool);
        assert_eq!(arena.available(Dynamic) + arena.available(Stable), arena.capacity());
    }
}
