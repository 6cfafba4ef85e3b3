//! Single pairs of every allocator in one process, so that their ratios are comparable.

use super::name::Name;
use super::row::Row;
use crate::timing::Rivals;
use crate::timing::allocator::{Driver, OnDevice, Pooled};
use crate::timing::clock::Effort;
use crate::timing::workload::{RANGE, Workload};
use vrampool::Error;

const SIZES: [(u64, &str); 3] = [(4 << 10, "4 KiB"), (64 << 10, "64 KiB"), (1 << 20, "1 MiB")];

/// The device itself, an arena, a pool's hit, its miss by way of an arena, and what else the driver has.
pub(crate) fn measure<B: Rivals>(bench: Name, device: &B, effort: Effort) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (bytes, case) in SIZES {
        let pair = Workload::Pair(bytes);
        let mut row = |allocator, figures| rows.push(Row::new(bench, case.into(), allocator, figures));
        row("driver", pair.run(&mut Driver::new(device), effort)?);
        row("arena", pair.run(&mut OnDevice::new(device, RANGE)?, effort)?);
        row("hit", pair.run(&mut Pooled::new(device, RANGE, 16)?, effort)?);
        row("miss", pair.run(&mut Pooled::keeping_nothing(device, RANGE)?, effort)?);
        for (name, figures) in device.time_rivals(pair, effort)? {
            row(name, figures);
        }
    }
    Ok(rows)
}
