//! cuArena's benchmarks 1 to 4: one workload for each allocator.

use super::name::Name;
use super::row::Row;
use crate::timing::Rivals;
use crate::timing::allocator::{Driver, OnDevice, Pooled};
use crate::timing::clock::Effort;
use crate::timing::workload::{BATCH, RANGE, Workload};
use vrampool::Error;

/// Times the device itself, an arena, a pool, and the driver's other allocators.
pub(crate) fn measure<B: Rivals>(
    bench: Name,
    workload: Workload,
    device: &B,
    effort: Effort,
) -> Result<Vec<Row>, Error> {
    let row = |allocator, figures| Row::new(bench, workload.case().into(), allocator, figures);
    let mut rows = vec![
        row("driver", workload.run(&mut Driver::new(device), effort)?),
        row("arena", workload.run(&mut OnDevice::new(device, RANGE)?, effort)?),
        row("pool", workload.run(&mut Pooled::new(device, RANGE, BATCH as u64)?, effort)?),
    ];
    for (name, figures) in device.time_rivals(workload, effort)? {
        rows.push(row(name, figures));
    }
    Ok(rows)
}
