//! cuArena's tests of its stable region, its bins and its compaction.

use super::{KB, MB, Setup, check, contents, discrete, holds, setup, setup_with_stable};
use vrampool::arena::ArenaBuffer;
use vrampool::arena::{ArenaError, Zone};
use vrampool::{Error, Placement};

type Buffer = ArenaBuffer<vrampool::host::HostDevice>;

fn stable(setup: &Setup, bytes: u64) -> Result<Buffer, Error> {
    setup.arena.allocate_in(bytes, Zone::Stable, &setup.stream)
}

fn offset(buffer: &Buffer) -> u64 {
    buffer.offset().expect("live")
}

fn compact(setup: &Setup, on_move: impl FnMut(vrampool::arena::Moved)) -> vrampool::arena::Compaction {
    setup.arena.compact(u64::MAX, &setup.stream, on_move).expect("no fault")
}

/// Eight blocks of 8 MiB that fill an arena of 64 MiB, each with its number as pattern.
fn eight_blocks(setup: &Setup) -> Vec<Option<Buffer>> {
    (0..8).map(|n| Some(setup.filled(8 * MB, n))).collect()
}

mod stable {
    use super::*;

    #[test]
    fn pointer_in_bounds() {
        let setup = setup_with_stable(64 * MB, 16 * MB);
        let buffer = stable(&setup, MB).expect("memory");
        assert!(offset(&buffer) + buffer.capacity() <= 16 * MB);
        assert_eq!(setup.arena.used_in(Zone::Stable), MB);
        let region = buffer.on(&setup.stream).expect("live");
        assert_eq!(region.address(), setup.arena.base().map(|base| base + offset(&buffer)));
    }

    #[test]
    fn stable_dynamic_do_not_overlap() {
        let setup = setup_with_stable(64 * MB, 16 * MB);
        let (kept, moving) = (stable(&setup, 16 * MB).expect("memory"), setup.allocate(48 * MB));
        assert!(offset(&kept) + kept.capacity() <= offset(&moving));
        check(&setup.arena);
    }

    #[test]
    fn free_realloc_coalesces() {
        let setup = setup_with_stable(64 * MB, 16 * MB);
        let (first, second) =
            (stable(&setup, 8 * MB).expect("memory"), stable(&setup, 8 * MB).expect("memory"));
        drop((first, second));
        check(&setup.arena);
        assert_eq!(offset(&stable(&setup, 16 * MB).expect("both are one")), 0);
    }

    #[test]
    fn out_of_memory_throws() {
        let setup = setup_with_stable(64 * MB, 4 * MB);
        let error = stable(&setup, 8 * MB).expect_err("more than the region");
        assert!(matches!(error.arena(), Some(ArenaError::NoSpace { zone: Zone::Stable, .. })), "{error}");
        assert!(error.is_out_of_memory() && error.to_string().contains("stable zone"), "{error}");
        assert_eq!(setup.arena.available(Zone::Dynamic), 60 * MB, "it does not fall back");
    }

    /// cuArena refuses every resize there. Here one grows in the region, and what the region has no room for
    /// is refused.
    #[test]
    fn resize_on_stable_throws() {
        let setup = setup_with_stable(64 * MB, 4 * MB);
        let mut buffer = stable(&setup, MB).expect("memory");
        let _behind = stable(&setup, MB).expect("memory");
        buffer.write(&[9; 64], &setup.stream).expect("no fault");
        let error = buffer.resize(8 * MB, &setup.stream).expect_err("more than the region");
        assert!(matches!(error.arena(), Some(ArenaError::NoSpace { zone: Zone::Stable, .. })), "{error}");
        assert_eq!((buffer.len(), offset(&buffer)), (MB, 0));
        buffer.resize(2 * MB, &setup.stream).expect("memory");
        assert_eq!(setup.arena.used_in(Zone::Stable), 3 * MB);
        assert_eq!(contents(&buffer, &setup.stream)[..64], [9; 64]);
    }

    /// cuArena returns a movable block instead (W11). Here a request for an absent region is an error.
    #[test]
    fn fallback_to_dynamic_when_no_stable_region() {
        let setup = setup(64 * MB);
        let error = stable(&setup, MB).expect_err("no such region");
        assert!(matches!(error.arena(), Some(ArenaError::NoStableZone)), "{error}");
        assert!(error.to_string().contains("ask for dynamic memory"), "{error}");
        assert_eq!((setup.arena.capacity_of(Zone::Stable), setup.arena.used()), (0, 0));
    }
}

mod dynamic_bins {
    use super::*;

    #[test]
    fn fragmentation_then_coalesce() {
        let setup = setup(64 * MB);
        let mut blocks = eight_blocks(&setup);
        blocks.iter_mut().step_by(2).for_each(|block| drop(block.take()));
        assert_eq!(setup.arena.fragmentation(Zone::Dynamic), 0.75);
        check(&setup.arena);
        blocks.iter_mut().skip(1).step_by(2).for_each(|block| drop(block.take()));
        assert_eq!(setup.arena.available(Zone::Dynamic), setup.arena.capacity());
        assert_eq!(setup.arena.largest_free_block(Zone::Dynamic), 64 * MB);
        assert_eq!(setup.arena.blocks().len(), 1);
    }

    #[test]
    fn adjacent_frees_coalesce() {
        let setup = setup(64 * MB);
        let mut blocks = eight_blocks(&setup);
        blocks.drain(2..4);
        assert_eq!(setup.arena.largest_free_block(Zone::Dynamic), 16 * MB);
        assert_eq!(offset(&setup.allocate(16 * MB)), 16 * MB);
    }

    #[test]
    fn oom_after_fragmentation() {
        let setup = setup(64 * MB);
        let mut blocks = eight_blocks(&setup);
        blocks.iter_mut().step_by(2).for_each(|block| drop(block.take()));
        let error = setup.arena.allocate(16 * MB, &setup.stream).expect_err("no hole is large enough");
        let Some(&ArenaError::NoSpace { available_bytes: available, largest_bytes: largest, .. }) =
            error.arena()
        else {
            panic!("{error}");
        };
        assert_eq!((available, largest), (32 * MB, 8 * MB));
    }

    /// The original does not look where the blocks are; here each hole is taken by the size that fits it
    /// best.
    #[test]
    fn different_size_classes() {
        let setup = setup(64 * MB);
        let sizes = [256, KB, 256 * KB, 4 * MB, 8 * MB];
        let mut holes = Vec::new();
        let walls: Vec<_> = sizes
            .iter()
            .map(|&size| {
                holes.push(setup.allocate(size));
                setup.allocate(64)
            })
            .collect();
        let places: Vec<u64> = holes.iter().map(offset).collect();
        drop(holes);
        check(&setup.arena);
        let again: Vec<_> = sizes.iter().rev().map(|&size| setup.allocate(size - 60)).collect();
        let taken: Vec<u64> = again.iter().rev().map(offset).collect();
        assert_eq!(taken, places);
        drop((walls, again));
        assert_eq!(setup.arena.used(), 0);
    }
}

mod compact {
    use super::*;

    #[test]
    fn no_allocs_resets_region() {
        let setup = setup(64 * MB);
        drop(eight_blocks(&setup));
        let mut calls = 0;
        assert_eq!(compact(&setup, |_| calls += 1), vrampool::arena::Compaction::default());
        assert_eq!((calls, setup.arena.available(Zone::Dynamic)), (0, setup.arena.capacity()));
    }

    #[test]
    fn packs_blocks_and_reclaims_hole() {
        let setup = setup(64 * MB);
        let mut blocks = eight_blocks(&setup);
        blocks.iter_mut().skip(1).step_by(2).for_each(|block| drop(block.take()));
        assert!(setup.arena.allocate(16 * MB, &setup.stream).is_err());
        let mut moved = Vec::new();
        let report = compact(&setup, |block| moved.push((block.from, block.to, block.bytes)));
        assert_eq!(moved, [(16, 8), (32, 16), (48, 24)].map(|(from, to)| (from * MB, to * MB, 8 * MB)));
        assert_eq!((report.moved_blocks, report.moved_bytes, report.held_blocks), (3, 24 * MB, 0));
        assert_eq!(setup.allocate(16 * MB).capacity(), 16 * MB);
        for (n, block) in blocks.iter().enumerate().step_by(2) {
            let block = block.as_ref().expect("kept");
            assert_eq!(offset(block), n as u64 * 4 * MB);
            assert!(holds(block, &setup.stream, n as u64), "block {n}");
        }
        check(&setup.arena);
    }

    #[test]
    fn callback_not_fired_for_unmoved_blocks() {
        let setup = setup(64 * MB);
        let (first, hole, last) = (setup.allocate(8 * MB), setup.allocate(8 * MB), setup.allocate(8 * MB));
        let mut calls = Vec::new();
        compact(&setup, |block| calls.push(block.from));
        assert_eq!(calls, [], "all are in their places");
        drop(hole);
        compact(&setup, |block| calls.push(block.from));
        assert_eq!((calls, offset(&first), offset(&last)), (vec![16 * MB], 0, 8 * MB));
    }

    /// Three blocks of 128 bytes in managed memory; the hole is as large as the block.
    #[test]
    fn preserves_gpu_data() {
        let setup = Setup::on(discrete(), |builder| builder.limit(64 * MB).memory(Placement::Managed));
        let [first, hole, last] = [0, 1, 2].map(|n| setup.filled(128, n));
        drop(hole);
        assert_eq!(compact(&setup, |_| ()).moved_bytes, 128);
        assert_eq!(offset(&last), 128);
        assert!(holds(&first, &setup.stream, 0) && holds(&last, &setup.stream, 2));
    }
}

mod mixed {
    use super::*;

    #[test]
    fn stable_survives_compact() {
        let setup = setup_with_stable(64 * MB, 16 * MB);
        let hole = stable(&setup, MB).expect("memory");
        let mut kept = stable(&setup, MB).expect("memory");
        kept.write(&[5; 4096], &setup.stream).expect("no fault");
        let dynamic_hole = setup.allocate(8 * MB);
        let moving = setup.filled(8 * MB, 6);
        drop((hole, dynamic_hole));
        assert_eq!(compact(&setup, |_| ()).moved_blocks, 1);
        assert_eq!((offset(&kept), offset(&moving)), (MB, 16 * MB));
        assert_eq!(contents(&kept, &setup.stream)[..4096], [5; 4096]);
        assert!(holds(&moving, &setup.stream, 6));
    }

    #[test]
    fn used_includes_both() {
        let setup = setup_with_stable(64 * MB, 16 * MB);
        let (_kept, _moving) = (stable(&setup, MB).expect("memory"), setup.allocate(2 * MB));
        let used = [Zone::Stable, Zone::Dynamic].map(|region| setup.arena.used_in(region));
        assert_eq!((used, setup.arena.used()), ([MB, 2 * MB], 3 * MB));
    }

    #[test]
    fn reset_clears_both() {
        let setup = setup_with_stable(64 * MB, 16 * MB);
        let stale = [stable(&setup, MB).expect("memory"), setup.allocate(2 * MB)];
        setup.arena.reset().expect("nothing moves");
        assert_eq!(setup.arena.used(), 0);
        let available = [Zone::Stable, Zone::Dynamic].map(|region| setup.arena.available(region));
        assert_eq!(available, [16 * MB, 48 * MB]);
        assert!(stale.iter().all(|buffer| buffer.offset().is_err()));
    }
}
