//! Streams that share no data run side by side on every device: none waits for memory that another one still
//! uses, while there is room for more.

use crate::there::{self, Count, There};
use crate::{KIB, MIB};
use vrampool::any::{AnyDevice, AnyMemory, AnyStream};
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, Buffer, Placement, Pool, RegionMut, SizeClasses, Source};

const STREAMS: usize = 3;
const TURNS: u64 = 3;
const SIZES: [u64; 3] = [4 * KIB, MIB, 8 * MIB];
/// Sizes of a forward pass's temporaries, in eighths of the given size.
const EIGHTHS: [u64; 10] = [8, 5, 11, 6, 8, 12, 4, 9, 7, 10];
/// Bytes at the beginning of a block that kernels write and verify.
const TOUCHED: u64 = 1024;
/// Fills that keep a stream busy before each block.
const FILLS: u8 = 4;

struct Bench<'a> {
    there: &'a There,
    pool: Pool<AnyDevice>,
    streams: [AnyStream; STREAMS],
    counts: Vec<Count<'a>>,
    /// Memory that is filled to keep each stream busy.
    ballast: Vec<AnyMemory>,
    seed: u64,
}

/// A block and the seed of its contents.
type Seeded = (Buffer<AnyDevice>, u64);

impl<'a> Bench<'a> {
    fn new(there: &'a There, source: Source, classes: &SizeClasses) -> Self {
        let builder = Pool::builder(&there.device).source(source).size_classes(classes.clone());
        let builder = if source == Source::Arena { builder.limit(256 * MIB) } else { builder };
        let streams: [AnyStream; STREAMS] = there.streams();
        let bytes = if there.is_fast() { 64 * MIB } else { MIB };
        let ballast = streams.iter().map(|_| {
            there.device.allocate(&AllocationRequest::new(bytes, Placement::Device)).expect("memory")
        });
        let ballast = ballast.collect();
        let counts = streams.iter().map(|stream| there.count(stream)).collect();
        Self { there, pool: builder.build().expect("a pool"), streams, counts, ballast, seed: 0 }
    }

    fn produce(&mut self, bytes: u64, nth: usize) -> Seeded {
        self.seed += 1;
        let stream = &self.streams[nth];
        for value in 0..FILLS {
            let region = RegionMut::whole(&self.ballast[nth], stream);
            self.there.device.fill(stream, region, value).expect("queued");
        }
        let mut buffer = self.pool.allocate(bytes, stream).expect("memory");
        let region = buffer.on_mut(stream).expect("a region").slice(..TOUCHED).expect("it fits");
        self.there.write(stream, region, self.seed);
        (buffer, self.seed)
    }

    fn verify(&self, (buffer, seed): &Seeded, nth: usize) {
        let region = buffer.on(&self.streams[nth]).expect("a region").slice(..TOUCHED).expect("it fits");
        self.counts[nth].verify(region, *seed);
    }

    /// A temporary, and then ten layers, on each stream in turn.
    fn turns(&mut self, bytes: u64) {
        for _ in 0..TURNS {
            for nth in 0..STREAMS {
                let mut previous = self.produce(bytes, nth);
                self.verify(&previous, nth);
                for eighths in EIGHTHS {
                    let layer = self.produce(bytes * eighths / 8, nth);
                    self.verify(&previous, nth);
                    previous = layer;
                }
            }
        }
    }
}

#[test]
fn streams_that_share_no_data_do_not_wait_for_each_other() {
    there::on_each(|there| {
        if !there.has_concurrent_streams() {
            return;
        }
        for source in there.sources() {
            for classes in [SizeClasses::Fixed, SizeClasses::PowerOfTwo] {
                for bytes in SIZES {
                    let mut bench = Bench::new(there, source, &classes);
                    bench.turns(bytes);
                    let context = format!("{}, {source}, {classes}, {bytes} bytes", there.name);
                    let wrong: u64 = bench.counts.iter().map(Count::read).sum();
                    assert_eq!(wrong, 0, "{context}");
                    let stats = bench.pool.stats();
                    assert_eq!((stats.stream_waits, stats.reuse_waits), (0, 0), "{context}");
                }
            }
        }
    });
}
