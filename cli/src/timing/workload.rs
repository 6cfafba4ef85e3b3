//! cuArena's benchmarks 1 to 4, and single pairs: patterns of allocating and freeing, the same for each
//! allocator.

use super::allocator::Allocator;
use super::clock::{Effort, Figures};
use std::hint::black_box;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The arena, and what a pool may keep.
pub(crate) const RANGE: u64 = 4 << 30;

/// Pairs in a sample of what is too short to be timed alone. cuArena times single pairs, clock included.
pub(crate) const PAIRS: usize = 64;

pub(crate) const BATCH: usize = 512;
const SLOTS: usize = 4;
const STEPS: usize = 8;

/// A pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// One of so many bytes, as the text names them.
    Pair(u64, &'static str),
    Single,
    Batch,
    PingPong,
    Doublings,
}

impl Workload {
    /// Single pairs of three sizes.
    pub(crate) const PAIRS: [Self; 3] =
        [Self::Pair(4 * KIB, "4 KiB"), Self::Pair(64 * KIB, "64 KiB"), Self::Pair(MIB, "1 MiB")];

    pub(crate) fn case(self) -> &'static str {
        match self {
            Self::Pair(_, case) => case,
            Self::Single => "8 MiB",
            Self::Batch => "512 x 1 KiB",
            Self::PingPong => "4 x 1 MiB",
            Self::Doublings => "1 MiB to 128 MiB",
        }
    }

    /// Returns the peak of live bytes.
    #[cfg(feature = "cuda")]
    pub(crate) fn most_bytes(self) -> u64 {
        match self {
            Self::Pair(bytes, _) => bytes,
            Self::Single => 8 * MIB,
            Self::Batch => BATCH as u64 * KIB,
            Self::PingPong => SLOTS as u64 * MIB,
            Self::Doublings => MIB << (STEPS - 1),
        }
    }

    pub(crate) fn run<A: Allocator>(self, allocator: &mut A, effort: Effort) -> Result<Figures, A::Error> {
        match self {
            Self::Pair(bytes, _) => pairs(allocator, bytes, PAIRS, effort),
            Self::Single => pairs(allocator, 8 * MIB, PAIRS, effort),
            Self::Batch => batch(allocator, effort),
            Self::PingPong => ping_pong(allocator, effort),
            Self::Doublings => doublings(allocator, effort),
        }
    }
}

/// A block allocated and freed, `pairs` times a sample.
pub(crate) fn pairs<A: Allocator>(
    allocator: &mut A,
    bytes: u64,
    pairs: usize,
    effort: Effort,
) -> Result<Figures, A::Error> {
    effort.time(pairs, || times(allocator, pairs, [bytes]))
}

/// So many times one of each size allocated and freed.
#[inline]
pub(crate) fn times<A: Allocator, const SIZES: usize>(
    allocator: &mut A,
    times: usize,
    sizes: [u64; SIZES],
) -> Result<(), A::Error> {
    for _ in 0..times {
        for bytes in sizes {
            let block = black_box(allocator.allocate(bytes)?);
            allocator.free(block)?;
        }
    }
    Ok(())
}

/// Many allocated, then all freed in the same order.
fn batch<A: Allocator>(allocator: &mut A, effort: Effort) -> Result<Figures, A::Error> {
    let mut blocks = Vec::with_capacity(BATCH);
    effort.time(BATCH, || {
        for _ in 0..BATCH {
            blocks.push(black_box(allocator.allocate(KIB)?));
        }
        blocks.drain(..).try_for_each(|block| allocator.free(block))
    })
}

/// A few live, one after the other freed and allocated again.
fn ping_pong<A: Allocator>(allocator: &mut A, effort: Effort) -> Result<Figures, A::Error> {
    let mut slots = (0..SLOTS)
        .map(|_| allocator.allocate(MIB).map(Some))
        .collect::<Result<Vec<Option<A::Block>>, A::Error>>()?;
    let figures = effort.time(PAIRS, || {
        for slot in 0..PAIRS {
            let slot = &mut slots[slot % SLOTS];
            if let Some(block) = slot.take() {
                allocator.free(block)?;
            }
            *slot = Some(black_box(allocator.allocate(MIB)?));
        }
        Ok(())
    })?;
    slots.into_iter().flatten().try_for_each(|block| allocator.free(block))?;
    Ok(figures)
}

/// A block that is replaced by one of twice its size, seven times.
fn doublings<A: Allocator>(allocator: &mut A, effort: Effort) -> Result<Figures, A::Error> {
    effort.time(STEPS, || {
        let mut block = allocator.allocate(MIB)?;
        for step in 1..STEPS {
            block = black_box(allocator.grow(block, MIB << step)?);
        }
        allocator.free(block)
    })
}
