//! What a pair of allocate and free costs the arena, by the number of free blocks and by the number of live
//! ones.
//!
//! `cargo bench --bench arena_instructions` prints instructions for each pair, counted by valgrind: those of many
//! pairs less those of none on the same arena, so that making it does not count.

use std::hint::black_box;
use vrampool::arena::{Arena, ArenaError, ArenaLayout, BlockId, Zone};
use vrampool_test_support::instructions;

const FREE_BLOCKS: [u64; 4] = [10, 1_000, 100_000, 1_000_000];

/// Pairs for each count of instructions.
const PAIRS: u64 = 20_000;

/// What is free, and what is asked for.
const CASES: [(&str, &str); 4] = [
    ("holes", "holes of 256 B, 384 B asked for: cuArena's bad case"),
    ("lifo", "the same holes, 256 B asked for"),
    ("random", "as many live, log-uniform 512 B to 16 MiB, one replaced at random"),
    ("one-bin", "the worst: holes of all sizes that one bin can hold, one between them asked for"),
];

/// An arena with as many free blocks as wanted, and what is live in it.
struct Bench {
    arena: Arena,
    live: Vec<BlockId>,
    random: fastrand::Rng,
}

impl Bench {
    fn new(alignment: u64, sizes: impl Iterator<Item = u64>) -> Result<Self, ArenaError> {
        let mut arena = Arena::new(ArenaLayout::new(1 << 60).alignment(alignment))?;
        let mut live = Vec::new();
        for bytes in sizes {
            live.push(arena.allocate(bytes, Zone::Dynamic)?);
        }
        Ok(Self { arena, live, random: fastrand::Rng::with_seed(1) })
    }

    /// Frees every other block.
    fn with_holes(mut self) -> Result<Self, ArenaError> {
        for block in self.live.iter().skip(1).step_by(2) {
            self.arena.free(*block)?;
        }
        self.live = self.live.into_iter().step_by(2).collect();
        Ok(self)
    }

    fn of(case: &str, free: u64) -> Result<Self, ArenaError> {
        let mut random = fastrand::Rng::with_seed(2);
        match case {
            "random" => Self::new(512, (0..2 * free).map(|_| log_uniform(&mut random)))?.with_holes(),
            "one-bin" => {
                let sizes = (0..2 * free).map(|_| (1 << 37) + random.u64(..1 << 27));
                Self::new(256, sizes)?.with_holes()
            }
            _ => Self::new(128, (0..2 * free).map(|_| 256))?.with_holes(),
        }
    }

    fn run(&mut self, case: &str, pairs: u64) -> Result<(), ArenaError> {
        match case {
            "random" => (0..pairs).try_for_each(|_| self.replace()),
            "one-bin" => (0..pairs).try_for_each(|_| {
                let bytes = (1 << 37) + self.random.u64(..1 << 27);
                self.pair(bytes)
            }),
            "holes" => (0..pairs).try_for_each(|_| self.pair(384)),
            _ => (0..pairs).try_for_each(|_| self.pair(256)),
        }
    }

    fn pair(&mut self, bytes: u64) -> Result<(), ArenaError> {
        let block = black_box(self.arena.allocate(bytes, Zone::Dynamic)?);
        self.arena.free(block)
    }

    /// Frees a random block and allocates another.
    fn replace(&mut self) -> Result<(), ArenaError> {
        let which = self.random.usize(..self.live.len());
        self.arena.free(self.live[which])?;
        self.live[which] = self.arena.allocate(log_uniform(&mut self.random), Zone::Dynamic)?;
        Ok(())
    }
}

/// 512 B to 16 MiB.
fn log_uniform(random: &mut fastrand::Rng) -> u64 {
    (512.0 * 32768f64.powf(random.f64())) as u64
}

fn main() -> Result<(), ArenaError> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [case, free, pairs] = &arguments[..] {
        let number = |text: &String| text.parse().unwrap_or(0);
        return Bench::of(case, number(free))?.run(case, number(pairs));
    }

    println!("instructions for each pair, by free blocks");
    for (case, what) in CASES {
        print!("{case:8}");
        for free in FREE_BLOCKS {
            let pairs = |pairs: u64| instructions(&[case.to_string(), free.to_string(), pairs.to_string()]);
            match (pairs(0), pairs(PAIRS)) {
                (Some(few), Some(many)) => print!(" {:8.1}", (many - few) as f64 / PAIRS as f64),
                _ => print!(" no valgrind"),
            }
        }
        println!("   {what}");
    }
    Ok(())
}
