//! Streams of a device, and scenes of work on them that verify its own results.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Buffer, Error, Pool, SizeClasses, Source};
use vrampool_test_support::{close_gate, has_virtual_memory};

/// Far longer than any of this work takes on a busy machine: reaching it means that a stream waits for a gate.
const BOUND: Duration = Duration::from_secs(30);
/// Bytes at each end of a block that work writes and verifies.
pub(super) const EDGE: usize = 1024;
pub(super) const SIZES: [u64; 4] = [4 << 10, 1 << 20, 8 << 20, 64 << 20];
pub(super) const TURNS: u64 = 3;
/// Sizes of a forward pass's temporaries, in eighths of the given size.
const EIGHTHS: [u64; 10] = [8, 5, 11, 6, 8, 12, 4, 9, 7, 10];
/// The most that the pools of one test take from the device.
pub(super) const ARENA: u64 = 4 << 30;

#[derive(Debug, Clone, Copy)]
pub(super) enum Scene {
    /// A temporary is allocated, used and freed.
    Single,
    /// Ten temporaries of mixed sizes, each freed when the next layer has read it.
    Layers,
}

#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) source: Source,
    pub(super) classes: SizeClasses,
    pub(super) bytes: u64,
    pub(super) scene: Scene,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, classes, bytes, scene } = self;
        write!(f, "{source}, {classes}, {bytes} bytes, {scene:?}")
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for source in sources() {
        for classes in [SizeClasses::Fixed, SizeClasses::PowerOfTwo] {
            for bytes in SIZES {
                for scene in [Scene::Single, Scene::Layers] {
                    cases.push(Case { source, classes: classes.clone(), bytes, scene });
                }
            }
        }
    }
    cases
}

/// Returns the sources of the host device on this system.
pub(super) fn sources() -> Vec<Source> {
    let has_virtual_memory = has_virtual_memory(&HostDevice::new());
    Source::ALL.iter().copied().filter(|&source| has_virtual_memory || source != Source::Virtual).collect()
}

/// Streams of a device, and what their work found.
pub(super) struct Bench {
    pub(super) device: HostDevice,
    pub(super) streams: Vec<HostStream>,
    pub(super) wrong: Arc<AtomicU64>,
    pub(super) seed: u64,
}

impl Bench {
    pub(super) fn new(streams: usize) -> Self {
        // Pages that nothing touches take no memory.
        let device = HostDevice::builder().memory_limit(1 << 40).build();
        let streams = (0..streams).map(|_| device.create_stream().expect("a stream")).collect();
        Self { device, streams, wrong: Arc::default(), seed: 0 }
    }

    pub(super) fn pool(&self, source: Source, classes: &SizeClasses) -> Pool<HostDevice> {
        let builder = Pool::builder(&self.device).source(source).size_classes(classes.clone());
        let builder = if source == Source::Arena { builder.limit(ARENA) } else { builder };
        builder.build().expect("a pool")
    }

    /// Allocates a block, and writes contents that no other block has.
    pub(super) fn produce(
        &mut self,
        pool: &Pool<HostDevice>,
        bytes: u64,
        stream: usize,
    ) -> Result<Seeded, Error> {
        self.seed += 1;
        let (stream, seed) = (&self.streams[stream], self.seed);
        let mut buffer = pool.allocate(bytes, stream)?;
        let write = move |[]: [&[u8]; 0], [block]: [&mut [u8]; 1]| {
            edges(block.len()).for_each(|index| block[index] = byte(seed, index));
        };
        stream.launch([], [buffer.on_mut(stream)?], write)?;
        Ok((buffer, seed))
    }

    /// Verifies the contents, later and in order.
    pub(super) fn verify(&self, (buffer, seed): &Seeded, stream: usize) {
        let (stream, seed, wrong) = (&self.streams[stream], *seed, Arc::clone(&self.wrong));
        let verify = move |[block]: [&[u8]; 1], []: [&mut [u8]; 0]| {
            let found = edges(block.len()).filter(|&index| block[index] != byte(seed, index)).count();
            wrong.fetch_add(found as u64, Ordering::Relaxed);
        };
        stream.launch([buffer.on(stream).expect("a region")], [], verify).expect("queued");
    }

    /// A step of the scene on one stream.
    pub(super) fn turn(&mut self, pool: &Pool<HostDevice>, case: &Case, stream: usize) -> Result<(), Error> {
        match case.scene {
            Scene::Single => {
                let block = self.produce(pool, case.bytes, stream)?;
                self.verify(&block, stream);
            }
            Scene::Layers => {
                let mut previous: Option<Seeded> = None;
                for eighths in EIGHTHS {
                    let block = self.produce(pool, case.bytes * eighths / 8, stream)?;
                    if let Some(previous) = previous.replace(block) {
                        self.verify(&previous, stream);
                    }
                }
            }
        }
        Ok(())
    }

    /// Steps of the scene on all streams in turn, on `pools` of which stream `n` has the `n`th.
    pub(super) fn turns(&mut self, pools: &[&Pool<HostDevice>], case: &Case) {
        for _ in 0..TURNS {
            for (stream, pool) in pools.iter().enumerate() {
                self.turn(pool, case, stream).unwrap_or_else(|error| panic!("{case}: {error}"));
            }
        }
    }

    /// Writes a block, holds the stream back, and verifies and frees the block behind the gate: a stream that gets
    /// the block too early overwrites bytes that are verified later.
    pub(super) fn hold_back(
        &mut self,
        pool: &Pool<HostDevice>,
        bytes: u64,
        stream: usize,
    ) -> std::sync::mpsc::Sender<()> {
        let block = self.produce(pool, bytes, stream).expect("memory");
        let open = close_gate(&self.streams[stream]);
        self.verify(&block, stream);
        open
    }

    /// Fails if the work of a stream does not complete.
    pub(super) fn assert_completes(&self, stream: usize, context: impl fmt::Display) {
        let (device, work) = (self.device.clone(), self.streams[stream].clone());
        let (done, completed) = channel();
        std::thread::spawn(move || done.send(device.synchronize(&work)));
        let outcome = completed.recv_timeout(BOUND);
        assert_eq!(outcome, Ok(Ok(())), "{context}: stream {stream} waits for a stream that is held back");
    }

    pub(super) fn assert_others_complete(&self, held_back: usize, context: impl fmt::Display) {
        for stream in (0..self.streams.len()).filter(|&stream| stream != held_back) {
            self.assert_completes(stream, format_args!("{context}, stream {held_back} is held back"));
        }
    }

    /// Once no stream is held back.
    pub(super) fn assert_contents(&self, context: impl fmt::Display) {
        for stream in 0..self.streams.len() {
            self.assert_completes(stream, &context);
        }
        let found = (self.wrong.load(Ordering::Relaxed), self.device.races());
        assert_eq!(found, (0, 0), "{context}: wrong bytes, work that met on one range");
    }
}

/// A block and the seed of its contents.
pub(super) type Seeded = (Buffer<HostDevice>, u64);

fn edges(bytes: usize) -> impl Iterator<Item = usize> {
    let edge = EDGE.min(bytes / 2);
    (0..edge).chain(bytes - edge..bytes)
}

fn byte(seed: u64, index: usize) -> u8 {
    let mixed = (seed ^ (index as u64) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}
