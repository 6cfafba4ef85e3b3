//! One workload for each allocator in one process, so that their ratios are comparable: cuArena's benchmarks 1 to 4,
//! and single pairs.

use super::name::Name;
use super::row::Row;
use crate::timing::Rivals;
use crate::timing::allocator::{driver, pooled, zone};
use crate::timing::clock::Effort;
use crate::timing::workload::{BATCH, RANGE, Workload};
use vrampool::arena::{DeviceArena, Zone};
use vrampool::{Error, Pool, Source};

/// Times the device itself, an arena, a pool, and the driver's other allocators; in [`Name::Pair`] also a pool's miss
/// by way of an arena.
pub(crate) fn measure<B: Rivals>(
    bench: Name,
    workloads: &[Workload],
    device: &B,
    effort: Effort,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    // An arena has as many bytes as the device gives at once.
    let range = RANGE.min(device.properties().max_allocation);
    for &workload in workloads {
        let mut row = |allocator, figures| rows.push(Row::new(bench, workload.case(), allocator, figures));
        row("driver", workload.run(driver(device, device.properties().preferred_placement()), effort)?);
        let arena = DeviceArena::builder(device).limit(range).build()?;
        row("arena", workload.run(zone(arena, Zone::Dynamic)?, effort)?);
        let pool = Pool::builder(device).max_cached_bytes(RANGE).max_buffers_per_bucket(BATCH as u64);
        let name = if bench == Name::Pair { "hit" } else { "pool" };
        row(name, workload.run(pooled(pool.build()?)?, effort)?);
        if bench == Name::Pair {
            let pool = Pool::builder(device).source(Source::Arena).limit(range).max_cached_bytes(0);
            row("miss", workload.run(pooled(pool.build()?)?, effort)?);
        }
        for (name, figures) in device.time_rivals(workload, effort)? {
            row(name, figures);
        }
    }
    Ok(rows)
}
