//! Benchmark 6 of cuArena: the stable zone compared with the dynamic zone.

use super::name::Name;
use super::row::Row;
use crate::timing::allocator::zone;
use crate::timing::clock::Effort;
use crate::timing::workload::{RANGE, pairs};
use vrampool::arena::DeviceArena;
use vrampool::arena::Zone;
use vrampool::{Backend, Error};

const STABLE: u64 = 512 << 20;

const SIZES: [(u64, &str); 3] = [(256, "256 B"), (256 << 10, "256 KiB"), (2 << 20, "2 MiB")];

/// All on one arena, from the small size up, without a reset in between.
pub(crate) fn measure<B: Backend>(bench: Name, device: &B, effort: Effort) -> Result<Vec<Row>, Error> {
    let arena = DeviceArena::builder(device).limit(RANGE).stable_bytes(STABLE).build()?;
    let mut rows = Vec::new();
    for (bytes, size) in SIZES {
        for region in [Zone::Stable, Zone::Dynamic] {
            let figures = pairs(zone(arena.clone(), region)?, bytes, effort)?;
            rows.push(Row::new(bench, format!("{region} {size}"), "arena", figures));
        }
    }
    Ok(rows)
}
