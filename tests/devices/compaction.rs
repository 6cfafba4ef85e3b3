//! Compaction on the device keeps every byte, also where a block is larger than the hole it moves into: a
//! copy that overlaps itself would corrupt it.

use crate::there;
use crate::{KIB, MIB};
use vrampool::arena::{ArenaBuffer, DeviceArena};

#[test]
fn data_survives_whether_holes_are_larger_or_smaller_than_blocks() {
    there::on_each(|there| {
        let [stream] = there.streams();
        let scale = if there.is_fast() { 8 } else { 1 };
        for (hole, block) in
            [(4 * MIB, MIB / 2), (MIB, MIB), (MIB / 2, 4 * MIB), (8 * KIB, 4 * MIB), (32, MIB), (16, 125)]
        {
            let (hole, block) = (scale * hole, scale * block);
            let builder = DeviceArena::builder(&there.device).limit(scale * 32 * MIB);
            let arena = builder.build().expect("an arena");
            let count = there.count(&stream);
            let mut holes = Vec::new();
            let mut blocks: Vec<ArenaBuffer<_>> = Vec::new();
            for seed in 0..6 {
                holes.push(arena.allocate(hole, &stream).expect("memory"));
                let mut buffer = arena.allocate(block, &stream).expect("memory");
                there.write(&stream, buffer.on_mut(&stream).expect("a region"), seed);
                blocks.push(buffer);
            }
            drop(holes);
            let mut moves = 0;
            let compaction = arena.compact(None, &stream, |_| moves += 1).expect("no fault");
            assert_eq!(moves, blocks.len(), "{}, {hole} B, {block} B: {compaction:?}", there.name);
            for (seed, buffer) in (0..).zip(&blocks) {
                count.verify(buffer.on(&stream).expect("a region"), seed);
            }
            assert_eq!(count.read(), 0, "{}, holes of {hole} B, blocks of {block} B", there.name);
            let end = blocks.iter().map(|block| block.offset().expect("it is live") + block.capacity()).max();
            assert_eq!(end, Some(arena.used()), "no hole is left");
        }
    });
}
