//! Compaction on the device keeps every byte, also where a block is larger than the hole it moves into: a copy that
//! overlaps itself would corrupt it.

use crate::gpu::{self, Count};
use crate::{KIB, MIB};
use vrampool::cuda::{CudaStream, Kernels};
use vrampool::{ArenaBuffer, DeviceArena, UNLIMITED};

#[test]
fn data_survives_whether_holes_are_larger_or_smaller_than_blocks() {
    let Some(device) = gpu::device() else { return };
    let kernels = Kernels::load(&device).expect("kernels");
    let [stream]: [CudaStream; 1] = gpu::streams(&device);
    for (hole, block) in [
        (32 * MIB, 4 * MIB),
        (8 * MIB, 8 * MIB),
        (4 * MIB, 32 * MIB),
        (64 * KIB, 48 * MIB),
        (256, 16 * MIB),
        (128, 1000),
    ] {
        let arena = DeviceArena::builder(&device).limit(512 * MIB).build().expect("an arena");
        let count = Count::new(&device, &stream);
        let mut holes = Vec::new();
        let mut blocks: Vec<ArenaBuffer<_>> = Vec::new();
        for seed in 0..6 {
            holes.push(arena.allocate(hole, &stream).expect("memory"));
            let mut buffer = arena.allocate(block, &stream).expect("memory");
            let region = buffer.on_mut(&stream).expect("a region");
            kernels.write_pattern(&stream, region, seed).expect("queued");
            blocks.push(buffer);
        }
        drop(holes);
        let mut moves = 0;
        let compaction = arena.compact(&stream, UNLIMITED, |_| moves += 1).expect("no fault");
        assert_eq!(moves, blocks.len(), "{hole} B, {block} B: {compaction:?}");
        for (seed, buffer) in (0..).zip(&blocks) {
            let region = buffer.on(&stream).expect("a region");
            kernels.count_mismatches(&stream, region, seed, count.on(&stream)).expect("queued");
        }
        assert_eq!(count.read(&stream), 0, "holes of {hole} B, blocks of {block} B");
        let end = blocks.iter().map(|block| block.offset().expect("it is live") + block.size()).max();
        assert_eq!(end, Some(arena.used()), "no hole is left");
    }
}
