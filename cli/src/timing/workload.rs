//! cuArena's benchmarks 1 to 4, and single pairs: patterns of allocating and freeing, the same for each
//! allocator.

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
    Batch,
    PingPong,
    Doublings,
}

impl Workload {
    /// A single pair of cuArena's size.
    pub(crate) const SINGLE: Self = Self::Pair(8 * MIB, "8 MiB");

    /// Single pairs of three sizes.
    pub(crate) const PAIRS: [Self; 3] =
        [Self::Pair(4 * KIB, "4 KiB"), Self::Pair(64 * KIB, "64 KiB"), Self::Pair(MIB, "1 MiB")];

    pub(crate) fn case(self) -> &'static str {
        match self {
            Self::Pair(_, case) => case,
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
            Self::Batch => BATCH as u64 * KIB,
            Self::PingPong => SLOTS as u64 * MIB,
            Self::Doublings => MIB << (STEPS - 1),
        }
    }

    /// Times `allocate`, which returns a block that its drop frees.
    pub(crate) fn run<T, E>(
        self,
        allocate: impl FnMut(u64) -> Result<T, E>,
        effort: Effort,
    ) -> Result<Figures, E> {
        match self {
            Self::Pair(bytes, _) => pairs(allocate, bytes, effort),
            Self::Batch => batch(allocate, effort),
            Self::PingPong => ping_pong(allocate, effort),
            Self::Doublings => doublings(allocate, effort),
        }
    }
}

/// A block allocated and freed, several times a sample.
pub(crate) fn pairs<T, E>(
    mut allocate: impl FnMut(u64) -> Result<T, E>,
    bytes: u64,
    effort: Effort,
) -> Result<Figures, E> {
    effort.time(PAIRS, || times(&mut allocate, PAIRS, [bytes]))
}

/// So many times one of each size allocated and freed.
#[inline]
pub(crate) fn times<T, E, const SIZES: usize>(
    allocate: &mut impl FnMut(u64) -> Result<T, E>,
    times: usize,
    sizes: [u64; SIZES],
) -> Result<(), E> {
    for _ in 0..times {
        for bytes in sizes {
            drop(black_box(allocate(bytes)?));
        }
    }
    Ok(())
}

/// Many allocated, then all freed in the same order.
fn batch<T, E>(mut allocate: impl FnMut(u64) -> Result<T, E>, effort: Effort) -> Result<Figures, E> {
    let mut blocks = Vec::with_capacity(BATCH);
    effort.time(BATCH, || {
        for _ in 0..BATCH {
            blocks.push(black_box(allocate(KIB)?));
        }
        blocks.clear();
        Ok(())
    })
}

/// A few live, one after the other freed and allocated again.
fn ping_pong<T, E>(mut allocate: impl FnMut(u64) -> Result<T, E>, effort: Effort) -> Result<Figures, E> {
    let slots: Result<Vec<Option<T>>, E> = (0..SLOTS).map(|_| allocate(MIB).map(Some)).collect();
    let mut slots = slots?;
    effort.time(PAIRS, || {
        for slot in 0..PAIRS {
            let slot = &mut slots[slot % SLOTS];
            *slot = None;
            *slot = Some(black_box(allocate(MIB)?));
        }
        Ok(())
    })
}

/// A block that is replaced by one of twice its size, seven times.
fn doublings<T, E>(mut allocate: impl FnMut(u64) -> Result<T, E>, effort: Effort) -> Result<Figures, E> {
    effort.time(STEPS, || {
        let mut block = allocate(MIB)?;
        for step in 1..STEPS {
            drop(block);
            block = black_box(allocate(MIB << step)?);
        }
        Ok(())
    })
}
