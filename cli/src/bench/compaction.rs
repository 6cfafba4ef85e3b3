//! Benchmark 5 of cuArena: compaction, followed by an allocation.

use super::name::Name;
use super::row::Row;
use crate::timing::clock::{Effort, Figures, Samples};
use crate::timing::workload::RANGE;
use std::hint::black_box;
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, Error, Region, RegionMut};

const BLOCKS: u64 = 8;
const BLOCK: u64 = 32 << 20;
const AFTERWARDS: u64 = 64 << 20;

/// The compaction, the same copies without an arena, the allocation.
pub(crate) fn measure<B: Backend>(bench: Name, device: &B, effort: Effort) -> Result<Vec<Row>, Error> {
    let plain = copies(device, effort)?;
    let (compaction, allocation) = compactions(device, effort)?;
    let case = "compact 4 x 32 MiB";
    Ok(vec![
        Row::new(bench, case, "driver", plain),
        Row::new(bench, case, "arena", compaction),
        Row::new(bench, "allocate 64 MiB", "arena", allocation),
    ])
}

/// The copies that the compaction makes, asked of the device directly.
fn copies<B: Backend>(device: &B, effort: Effort) -> Result<Figures, Error> {
    let stream = device.create_stream()?;
    let memory = device
        .allocate(&AllocationRequest::new(BLOCKS * BLOCK, device.properties().preferred_placement()))?;
    device.fill(&stream, RegionMut::whole(&memory, &stream), 1)?;
    device.synchronize(&stream)?;
    effort.time(1, || {
        for to in 0..BLOCKS / 2 {
            let source = Region::new(&memory, (2 * to + 1) * BLOCK, BLOCK, &stream)?;
            device.copy(&stream, source, RegionMut::new(&memory, to * BLOCK, BLOCK, &stream)?)?;
        }
        Ok(device.synchronize(&stream)?)
    })
}

fn compactions<B: Backend>(device: &B, effort: Effort) -> Result<(Figures, Figures), Error> {
    let stream = device.create_stream()?;
    let arena = DeviceArena::builder(device).limit(RANGE).build()?;
    // Else blocks that nothing ever wrote would be copied from a single page of zeroes.
    let mut touched = arena.allocate(BLOCKS * BLOCK, &stream)?;
    device.fill(&stream, touched.on_mut(&stream)?, 1)?;
    device.synchronize(&stream)?;
    drop(touched);

    let (mut compact, mut allocate) = (Samples::new(effort, 1), Samples::new(effort, 1));
    for _ in effort.rounds() {
        let blocks = (0..BLOCKS).map(|_| arena.allocate(BLOCK, &stream));
        let blocks = blocks.collect::<Result<Vec<ArenaBuffer<B>>, Error>>()?;
        // Frees blocks 0, 2, 4 and 6.
        let kept: Vec<_> = blocks.into_iter().skip(1).step_by(2).collect();
        compact.time(|| {
            black_box(arena.compact(None, &stream, |_| {})?);
            Ok::<(), Error>(device.synchronize(&stream)?)
        })?;
        let afterwards = allocate.time(|| black_box(arena.allocate(AFTERWARDS, &stream)))?;
        drop((kept, afterwards));
        arena.reset()?;
    }
    Ok((compact.figures(), allocate.figures()))
}
