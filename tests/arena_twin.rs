//! The arena does what a naive twin does, over long histories: nothing overlaps, free neighbours merge at
//! once, every byte is accounted for, and a request succeeds whenever some gap holds it.

mod history;

use history::{History, Operation};
use proptest::prelude::*;
use std::collections::HashSet;
use vrampool::arena::{Arena, ArenaError, ArenaLayout, BlockId, Move, Zone};

/// Capacity, stable bytes, alignment.
const LAYOUTS: [(u64, u64, u64); 6] = [
    (1 << 16, 0, 256),
    (1 << 20, 1 << 18, 256),
    (100_000, 5_000, 64),
    (4096, 0, 1),
    (0, 0, 512),
    // Many sizes in a bin.
    (1 << 24, 1 << 22, 1),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_history_agrees_with_the_twin(
        (capacity, stable, alignment) in prop::sample::select(&LAYOUTS[..]),
        steps in prop::collection::vec(any::<[u8; 6]>(), 0..300),
    ) {
        let mut history = History::new(capacity, stable, alignment);
        for step in steps {
            history.apply(Operation::decode(step));
        }
    }
}

#[test]
fn long_histories_agree_with_the_twin() {
    for (seed, (capacity, stable, alignment)) in (1..).zip(LAYOUTS) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut history = History::new(capacity, stable, alignment);
        for _ in 0..6_000 {
            history.apply(Operation::decode(std::array::from_fn(|_| random.u8(..))));
        }
    }
}

/// A random half full of holes, with blocks of all sizes, some of them pinned.
fn holes(random: &mut fastrand::Rng) -> Result<(Arena, Vec<BlockId>), ArenaError> {
    let mut arena = Arena::new(ArenaLayout::new(1 << 24).alignment(256))?;
    let mut blocks = Vec::new();
    for _ in 0..2000 {
        let alignment = if random.u8(..) < 16 { 4096 } else { 1 };
        blocks.push(arena.allocate_aligned(random.u64(1..8192), alignment, Zone::Dynamic)?);
    }
    random.shuffle(&mut blocks);
    for block in blocks.drain(1000..) {
        arena.free(block)?;
    }
    Ok((arena, blocks))
}

fn pass(arena: &mut Arena, budget: u64) -> Result<u64, ArenaError> {
    let planned: Vec<Move> = arena.plan(budget).collect();
    let mut moved = 0;
    for slide in planned {
        assert_eq!(arena.begin_move(slide.block)?, Some(slide));
        arena.commit_move(slide.block)?;
        moved += slide.bytes;
    }
    arena.release_vacated();
    arena.check().unwrap();
    Ok(moved)
}

#[test]
fn passes_of_any_budget_pack_the_region() -> Result<(), ArenaError> {
    let mut random = fastrand::Rng::with_seed(7);
    for budget in [8192, 10_000, 65_536, 1 << 20, u64::MAX] {
        let (mut arena, blocks) = holes(&mut random)?;
        let (used, most) = (arena.used(), arena.used().div_ceil(budget.saturating_sub(8191)) + 1);
        let mut passes = 0;
        while pass(&mut arena, budget)? > 0 {
            passes += 1;
            assert!(passes <= most, "each byte moves once");
        }
        assert_eq!((arena.used(), arena.held()), (used, 0));
        // The most that alignment may leave in front of a block.
        assert!(arena.highest_end() <= used + 4096 * blocks.len() as u64);
        assert!(arena.largest_free_block(Zone::Dynamic) >= arena.capacity() - arena.highest_end());
        let mut end = 0;
        for span in
            arena.blocks().filter(|span| matches!(span.state, vrampool::arena::SpanState::Live { .. }))
        {
            assert!(span.offset - end < 4096);
            end = span.offset + span.bytes;
        }
    }
    Ok(())
}

#[test]
fn an_aligned_request_succeeds_if_only_one_hole_has_it() -> Result<(), ArenaError> {
    // 1000 holes of one size, two of which are aligned; then one.
    let mut arena = Arena::new(ArenaLayout::new(2000 * 512).alignment(256))?;
    let blocks: Vec<BlockId> =
        (0..2000).map(|_| arena.allocate(512, Zone::Dynamic)).collect::<Result<_, _>>()?;
    for &block in blocks.iter().step_by(2) {
        arena.free(block)?;
    }
    let mut fits = HashSet::from([0, 1 << 19]);
    while !fits.is_empty() {
        let block = arena.allocate_aligned(512, 1 << 19, Zone::Dynamic)?;
        assert!(fits.remove(&arena.offset(block)?));
    }
    assert!(arena.allocate_aligned(512, 1 << 19, Zone::Dynamic).is_err());
    arena.check().unwrap();
    Ok(())
}

#[test]
fn nothing_overflows() -> Result<(), ArenaError> {
    let mut arena = Arena::new(ArenaLayout::new(u64::MAX).alignment(1))?;
    let all = arena.allocate(u64::MAX, Zone::Dynamic)?;
    assert_eq!((arena.used(), arena.highest_end()), (u64::MAX, u64::MAX));
    arena.free(all)?;
    arena.allocate(1, Zone::Dynamic)?;
    let half = arena.allocate_aligned(1 << 62, 1 << 63, Zone::Dynamic)?;
    assert_eq!(arena.offset(half), Ok(1 << 63));
    for alignment in [1, 1 << 40, 1 << 63] {
        let refused = arena.allocate_aligned(u64::MAX, alignment, Zone::Dynamic);
        assert!(matches!(refused, Err(ArenaError::NoSpace { .. })), "{refused:?}");
    }
    assert!(matches!(arena.resize_in_place(half, u64::MAX), Err(ArenaError::NoRoom { .. })));
    arena.check().unwrap();

    let mut arena = Arena::new(ArenaLayout::new(u64::MAX))?;
    for bytes in [u64::MAX, u64::MAX - 254] {
        let refused = arena.allocate(bytes, Zone::Dynamic);
        assert!(
            matches!(refused, Err(ArenaError::Overflow { bytes: asked, .. }) if asked == bytes),
            "{refused:?}"
        );
    }
    assert!(arena.allocate(u64::MAX - 255, Zone::Dynamic).is_ok());
    assert_eq!(arena.allocate(0, Zone::Dynamic), Err(ArenaError::ZeroBytes));
    assert_eq!(arena.set_capacity(1 << 20).map_err(|error| error.is_out_of_memory()), Err(false));
    Ok(())
}

#[test]
fn records_take_at_most_48_bytes_for_each_block() -> Result<(), ArenaError> {
    let fixed = Arena::new(ArenaLayout::new(0))?.host_memory();
    let mut arena = Arena::new(ArenaLayout::new(1 << 40).alignment(256))?;
    let mut blocks = Vec::new();
    for count in 1..=300_000 {
        blocks.push(arena.allocate(256, Zone::Dynamic)?);
        assert!(count < 1000 || arena.host_memory() - fixed <= 48 * count);
    }
    let before = arena.host_memory();
    for block in blocks.drain(..).step_by(2) {
        arena.free(block)?;
    }
    assert_eq!(arena.free_blocks(Zone::Dynamic), 150_001, "as many free as live");
    for bytes in 1..=300_000 {
        let block = arena.allocate(bytes, Zone::Dynamic)?;
        arena.free(block)?;
    }
    assert_eq!(arena.host_memory(), before, "a warm arena allocates no more");
    Ok(())
}
