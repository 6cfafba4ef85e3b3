//! One workload for each allocator in one process, so that their ratios are comparable: cuArena's benchmarks 1 to 4,
//! and single pairs.

use super::name::Name;
use super::row::Row;
use crate::timing::Rivals;
use crate::timing::allocator::{Driver, OnDevice, Pooled};
use crate::timing::clock::Effort;
use crate::timing::workload::{BATCH, RANGE, Workload};
use vrampool::Error;

/// Times the device itself, an arena, a pool, and the driver's other allocators; in [`Name::Pair`] also a pool's miss
/// by way of an arena.
pub(crate) fn measure<B: Rivals>(
    bench: Name,
    workloads: &[Workload],
    device: &B,
    effort: Effort,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for &workload in workloads {
        let mut row =
            |allocator, figures| rows.push(Row::new(bench, workload.case().into(), allocator, figures));
        row("driver", workload.run(&mut Driver::new(device), effort)?);
        row("arena", workload.run(&mut OnDevice::new(device, RANGE)?, effort)?);
        let pool = if bench == Name::Pair { "hit" } else { "pool" };
        row(pool, workload.run(&mut Pooled::new(device, RANGE, BATCH as u64)?, effort)?);
        if bench == Name::Pair {
            row("miss", workload.run(&mut Pooled::keeping_nothing(device, RANGE)?, effort)?);
        }
        for (name, figures) in device.time_rivals(workload, effort)? {
            row(name, figures);
        }
    }
    Ok(rows)
}
