//! A storm of work: four threads share four streams and one pool, and every content is checked, by kernels
//! and by the host.

use crate::there::{self, Count, There};
use crate::{DROPPED, MIB, STAGING};
use fastrand::Rng;
use vrampool::any::{AnyDevice, AnyStream};
use vrampool::{Backend, Buffer, Pool};

const THREADS: u64 = 4;
/// Of each thread. With this it takes some 30 seconds where two processors are all the devices that there
/// are.
const OPERATIONS: u32 = 10_000;
const LIMIT: u64 = 48 * MIB;
const CACHED: u64 = LIMIT / 4;
const PER_BUCKET: u64 = 8;
const MOST_LIVE: usize = 8;

/// The contents of a buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Content {
    /// Of a kernel.
    Pattern(u64),
    /// Of the host.
    Bytes(u8),
    Filled(u8),
}

impl Content {
    fn byte(self, index: u64) -> u8 {
        match self {
            Self::Bytes(seed) => (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) ^ seed,
            Self::Filled(value) => value,
            Self::Pattern(_) => unreachable!("the device knows it"),
        }
    }

    fn bytes(self, len: u64) -> Vec<u8> {
        (0..len).map(|index| self.byte(index)).collect()
    }
}

struct Held {
    buffer: Buffer<AnyDevice>,
    content: Content,
}

/// One thread of it.
struct Storm<'a> {
    there: &'a There,
    pool: &'a Pool<AnyDevice>,
    streams: &'a [AnyStream; 4],
    rng: Rng,
    held: Vec<Held>,
    /// Of the first stream.
    count: Count<'a>,
    checked: u64,
}

impl Storm<'_> {
    fn stream(&mut self) -> AnyStream {
        self.streams[self.rng.usize(..self.streams.len())].clone()
    }

    /// Checks the caps, and that the driver's memory, by its own counter, is bounded by the limit.
    fn check_held(&self) {
        let stats = self.pool.stats();
        assert!(stats.idle_bytes <= CACHED && stats.held_bytes <= LIMIT, "{stats:?}");
        assert!(stats.buckets.iter().all(|bucket| bucket.idle_buffers <= PER_BUCKET), "{stats:?}");
        let held = self.there.held().unwrap_or(0);
        assert!(held <= LIMIT + DROPPED + STAGING, "{}: {held} bytes are held", self.there.name);
    }

    fn step(&mut self) {
        match self.rng.u32(..16) {
            0..6 if self.held.len() < MOST_LIVE => self.begin(),
            0..10 => self.overwrite(),
            10..12 => self.copy(),
            12 => _ = self.pool.trim_to(self.rng.u64(..LIMIT)),
            _ => self.check_and_drop(),
        }
    }

    fn begin(&mut self) {
        let (stream, shift) = (self.stream(), self.rng.u32(..18));
        let bytes = self.there.rounded(self.rng.u64(1..=(1 << shift)));
        match self.pool.allocate(bytes, &stream) {
            Ok(buffer) => {
                self.held.push(Held { buffer, content: Content::Filled(0) });
                self.write(self.held.len() - 1);
            }
            Err(error) => assert!(error.is_out_of_memory(), "{error}"),
        }
    }

    fn overwrite(&mut self) {
        if !self.held.is_empty() {
            let index = self.rng.usize(..self.held.len());
            self.write(index);
        }
    }

    fn write(&mut self, index: usize) {
        let (stream, seed) = (self.stream(), self.rng.u64(..));
        let Held { buffer, content } = &mut self.held[index];
        *content = match seed % 3 {
            0 => Content::Pattern(seed),
            1 => Content::Bytes(seed as u8),
            _ => Content::Filled((seed >> 8) as u8),
        };
        match *content {
            Content::Pattern(seed) => {
                self.there.write(&stream, buffer.on_mut(&stream).expect("a region"), seed);
            }
            Content::Filled(value) => {
                let region = buffer.on_mut(&stream).expect("a region");
                self.there.device.fill(&stream, region, value).expect("queued");
            }
            content => buffer.write(&content.bytes(buffer.len()), &stream).expect("queued"),
        }
    }

    /// To a new buffer.
    fn copy(&mut self) {
        if self.held.is_empty() || self.held.len() >= MOST_LIVE {
            return;
        }
        let (index, stream) = (self.rng.usize(..self.held.len()), self.stream());
        let Held { buffer, content } = &self.held[index];
        let Ok(mut to) = self.pool.allocate(buffer.len(), &stream) else { return };
        let from = buffer.on(&stream).expect("a region");
        let copied = self.there.device.copy(&stream, from, to.on_mut(&stream).expect("a region"));
        match copied {
            Ok(()) => {
                let content = *content;
                self.held.push(Held { buffer: to, content });
            }
            // Within one memory, which not every device can.
            Err(error) => assert!(self.pool.arena().is_some(), "{}: {error}", self.there.name),
        }
    }

    fn check_and_drop(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let (index, stream) = (self.rng.usize(..self.held.len()), self.stream());
        let Held { buffer, content } = self.held.swap_remove(index);
        self.checked += 1;
        if let Content::Pattern(seed) = content {
            self.count.verify(buffer.on(&self.streams[0]).expect("a region"), seed);
            return;
        }
        let mut bytes = vec![!content.byte(0); buffer.len() as usize];
        buffer.read(&mut bytes, &stream).expect("no fault");
        assert!(bytes == content.bytes(buffer.len()), "{}: {content:?}", self.there.name);
    }

    /// Answers how many contents were checked.
    fn end(mut self) -> u64 {
        while !self.held.is_empty() {
            self.check_and_drop();
        }
        assert_eq!(self.count.read(), 0, "{}: bytes that no kernel wrote", self.there.name);
        self.checked
    }
}

#[test]
fn every_content_in_a_storm_is_right() {
    there::on_each(|there| {
        let there = &there.counted();
        for source in there.sources() {
            let builder = Pool::builder(&there.device).source(source).limit(LIMIT).max_cached_bytes(CACHED);
            let pool = builder.max_buffers_per_bucket(PER_BUCKET).build().expect("a pool");
            let streams: [AnyStream; 4] = there.streams();
            let checked: u64 = std::thread::scope(|scope| {
                let storm = |seed| {
                    let (pool, streams) = (&pool, &streams);
                    scope.spawn(move || {
                        let (rng, count) = (Rng::with_seed(seed), there.count(&streams[0]));
                        let mut storm =
                            Storm { there, pool, streams, rng, held: Vec::new(), count, checked: 0 };
                        for operation in 0..OPERATIONS {
                            storm.step();
                            if operation % 64 == 0 {
                                storm.check_held();
                            }
                        }
                        storm.end()
                    })
                };
                let threads: Vec<_> = (0..THREADS).map(storm).collect();
                threads.into_iter().map(|thread| thread.join().expect("every content is right")).sum()
            });
            assert!(checked > u64::from(OPERATIONS) / 4, "{}, {source}: {checked} contents", there.name);
            eprintln!("{}, {source}: {checked} contents", there.name);
            pool.trim().expect("a trim");
            let (held, reserved) = (there.held().unwrap_or(0), pool.stats().reserved_bytes);
            assert!(held <= reserved + STAGING, "{}, {source}: {held} bytes are held", there.name);
            assert_eq!(
                (pool.stats().live_bytes, pool.stats().idle_bytes),
                (0, 0),
                "{}, {source}",
                there.name
            );
        }
    });
}
