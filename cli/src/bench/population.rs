//! Pairs among many live blocks of all sizes, as in a busy arena.

use super::name::Name;
use super::row::{Case, Row};
use crate::timing::allocator::{Allocator, Engine, OnDevice};
use crate::timing::clock::{Effort, Figures, Samples};
use fastrand::Rng;
use std::hint::black_box;
use vrampool::{Backend, Error};

/// Live blocks.
const COUNTS: [usize; 3] = [64, 1024, 8192];

/// The range. 8192 blocks are 13 GiB on average.
const RANGE: u64 = 32 << 30;

/// Pairs in a sample.
const PAIRS: usize = 4096;

/// How often each block is replaced, on average, before anything is timed, so that holes are where they come
/// to be.
const REPLACED: usize = 16;

/// The size of the block that is allocated and freed beside the live blocks, bytes.
const LIFO: u64 = 64 << 10;

const SEED: u64 = 1;

/// The timed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// One size is allocated and freed.
    Lifo,
    /// A random block is freed and one of a random size allocated.
    Random,
}

/// The engine without memory, and an arena on the device, with the same requests.
pub(crate) fn measure<B: Backend>(
    bench: Name,
    pattern: Pattern,
    device: &B,
    effort: Effort,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for count in COUNTS {
        let row = |name, figures| Row::new(bench, Case::Live(count), name, figures);
        let engine = Population::new(Engine::new(RANGE)?, count)?;
        rows.push(row("arena", engine.time(pattern, PAIRS, effort)?));
        let arena = Population::new(OnDevice::new(device, RANGE)?, count)?;
        rows.push(row("device_arena", arena.time(pattern, PAIRS, effort)?));
    }
    Ok(rows)
}

/// Live blocks of an allocator.
pub(crate) struct Population<A: Allocator> {
    blocks: Vec<A::Block>,
    allocator: A,
    random: Rng,
}

/// Which block goes, and the size of the one that comes.
type Choice = (usize, u64);

impl<A: Allocator> Population<A> {
    pub(crate) fn new(mut allocator: A, count: usize) -> Result<Self, A::Error> {
        let mut random = Rng::with_seed(SEED);
        let blocks = (0..count).map(|_| allocator.allocate(log_uniform(&mut random)));
        let blocks = blocks.collect::<Result<_, A::Error>>()?;
        let mut population = Self { blocks, allocator, random };
        let choices = population.choices(REPLACED * count);
        population.replace(&choices)?;
        Ok(population)
    }

    /// `pairs` pairs to a sample.
    pub(crate) fn time(
        mut self,
        pattern: Pattern,
        pairs: usize,
        effort: Effort,
    ) -> Result<Figures, A::Error> {
        let mut samples = Samples::new(effort, pairs);
        for _ in effort.rounds() {
            // Drawn outside the timed part.
            let choices = self.choices(pairs);
            match pattern {
                Pattern::Lifo => samples.time(|| self.pairs(pairs))?,
                Pattern::Random => samples.time(|| self.replace(&choices))?,
            }
        }
        Ok(samples.figures())
    }

    fn choices(&mut self, count: usize) -> Vec<Choice> {
        let Self { blocks, random, .. } = self;
        (0..count).map(|_| (random.usize(..blocks.len()), log_uniform(random))).collect()
    }

    fn replace(&mut self, choices: &[Choice]) -> Result<(), A::Error> {
        for &(which, bytes) in choices {
            self.allocator.free(self.blocks.swap_remove(which))?;
            self.blocks.push(black_box(self.allocator.allocate(bytes)?));
        }
        Ok(())
    }

    fn pairs(&mut self, pairs: usize) -> Result<(), A::Error> {
        for _ in 0..pairs {
            let block = black_box(self.allocator.allocate(LIFO)?);
            self.allocator.free(block)?;
        }
        Ok(())
    }
}

/// 512 B to 16 MiB.
fn log_uniform(random: &mut Rng) -> u64 {
    (512.0 * 32768f64.powf(random.f64())) as u64
}
