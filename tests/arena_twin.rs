//! The arena does what a naive twin does, over long histories: nothing overlaps, free neighbours merge at
//! once, every byte is accounted for, and a request succeeds whenever some gap holds it.

mod history;

use history::{History, Operation};
use proptest::prelude::*;
use vrampool::arena::{Arena, ArenaError, ArenaLayout, Move, Zone};

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

/// A random half full of holes, with blocks of all sizes.
fn holes(random: &mut fastrand::Rng) -> Result<Arena, ArenaError> {
    let mut arena = Arena::new(ArenaLayout::new(1 << 24).alignment(256))?;
    let mut blocks = Vec::new();
    for _ in 0..2000 {
        blocks.push(arena.allocate(random.u64(1..8192), Zone::Dynamic)?);
    }
    random.shuffle(&mut blocks);
    for block in blocks.drain(1000..) {
        arena.free(block)?;
    }
    Ok(arena)
}

fn pass(arena: &mut Arena, budget: u64) -> Result<u64, ArenaError> {
    let planned: Vec<Move> = arena.plan(budget).collect();
    let mut moved = 0;
    for slide in planned {
        assert_eq!(arena.begin_move(slide.block)?, Some(slide));
        arena.commit_move(slide.block)?;
        moved += slide.bytes;
    }
    Ok(moved)
}

#[test]
fn passes_of_any_budget_pack_the_region() -> Result<(), ArenaError> {
    let mut random = fastrand::Rng::with_seed(7);
    for budget in [8192, 10_000, 65_536, 1 << 20, u64::MAX] {
        let mut arena = holes(&mut random)?;
        let (used, most) = (arena.used(), arena.used().div_ceil(budget.saturating_sub(8191)) + 1);
        let mut passes = 0;
        while pass(&mut arena, budget)? > 0 {
            passes += 1;
            assert!(passes <= most, "each byte moves once");
        }
        assert_eq!((arena.used(), arena.held()), (used, 0));
        assert_eq!(arena.largest_free_block(Zone::Dynamic), arena.capacity() - used, "packed");
    }
    Ok(())
}

#[test]
fn nothing_overflows() -> Result<(), ArenaError> {
    let mut arena = Arena::new(ArenaLayout::new(u64::MAX).alignment(1))?;
    let all = arena.allocate(u64::MAX, Zone::Dynamic)?;
    assert_eq!((arena.used(), arena.offset(all)), (u64::MAX, Ok(0)));
    arena.free(all)?;
    arena.allocate(1, Zone::Dynamic)?;
    let refused = arena.allocate(u64::MAX, Zone::Dynamic);
    assert!(matches!(refused, Err(ArenaError::NoSpace { .. })), "{refused:?}");

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
    Ok(())
}
