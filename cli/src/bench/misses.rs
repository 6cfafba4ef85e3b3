//! The time of a miss that an arena serves, and of the drop that returns the block: a pool without a cache,
//! compared with the arena alone and the device alone.

use super::name::Name;
use super::population::{Pattern, Population};
use super::row::Row;
use crate::timing::allocator::{Allocator, Driver, OnDevice, Pooled};
use crate::timing::clock::{Effort, Figures};
use crate::timing::workload;
use vrampool::{Backend, Error};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The arena.
const RANGE: u64 = 32 << 30;

/// Pairs in a sample, but for those of the device alone, which take a thousand times as long.
const PAIRS: usize = 4096;
const DRIVER_PAIRS: usize = 64;

/// How many live blocks of all sizes one is replaced among.
const LIVE: usize = 1024;

/// Pairs of a small size, of a large one, and of random ones among live blocks.
pub(crate) fn measure<B: Backend>(bench: Name, device: &B, effort: Effort) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (case, bytes) in [("4 KiB", Some(4 * KIB)), ("8 MiB", Some(8 * MIB)), ("random, 1024 live", None)] {
        let row = |name, figures| Row::new(bench, case.into(), name, figures);
        rows.push(row("driver", time(Driver::new(device), bytes, DRIVER_PAIRS, effort)?));
        rows.push(row("arena", time(OnDevice::new(device, RANGE)?, bytes, PAIRS, effort)?));
        rows.push(row("pool", time(Pooled::keeping_nothing(device, RANGE)?, bytes, PAIRS, effort)?));
    }
    Ok(rows)
}

/// Pairs of so many bytes, or of random sizes.
fn time<A: Allocator>(
    mut allocator: A,
    bytes: Option<u64>,
    pairs: usize,
    effort: Effort,
) -> Result<Figures, Error> {
    let figures = match bytes {
        Some(bytes) => workload::pairs(&mut allocator, bytes, pairs, effort),
        None => Population::new(allocator, LIVE).and_then(|live| live.time(Pattern::Random, pairs, effort)),
    };
    figures.map_err(Into::into)
}
