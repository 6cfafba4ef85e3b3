//! Random histories: contents, addresses, books, bounds.

use super::{Live, PAGE, Scene, scene};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool::arena::ArenaError;

#[derive(Debug, Clone)]
enum Step {
    Allocate { bytes: u64, stream: usize },
    Free { which: usize },
    Release { spare: u64 },
    Limit { pages: u64 },
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![1..PAGE / 4, 1..3 * PAGE, 2 * PAGE..12 * PAGE, (1..9u64).prop_map(|pages| pages * PAGE)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (bytes(), 0..3usize).prop_map(|(bytes, stream)| Step::Allocate { bytes, stream }),
        9 => any::<usize>().prop_map(|which| Step::Free { which }),
        2 => prop_oneof![Just(0), 0..20 * PAGE].prop_map(|spare| Step::Release { spare }),
        1 => (0..60u64).prop_map(|pages| Step::Limit { pages }),
    ]
}

/// Runs a history. Answers how many blocks were stitched.
fn run(scene: Scene, mut limit: u64, smallest_pieces: bool, steps: Vec<Step>) -> u64 {
    let (mut live, mut seeds, mut stitched) = (Vec::<Live>::new(), 0, 0);
    for step in steps {
        seeds += 1;
        match step {
            Step::Allocate { bytes, stream } => match scene.arena.allocate(bytes, &scene.streams[stream]) {
                Ok(buffer) => {
                    let mut one = Live { buffer, seed: 0, address: 0 };
                    scene.write(&mut one, stream, seeds);
                    stitched += u64::from(one.is_stitched(&scene));
                    live.push(one);
                }
                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
            },
            Step::Free { which } if !live.is_empty() => {
                let one = live.swap_remove(which % live.len());
                scene.check(&one, which % 3);
            }
            Step::Release { spare } => {
                let before = scene.arena.reserved_bytes();
                let released = scene.arena.release(spare).expect("no fault");
                assert_eq!(scene.arena.reserved_bytes(), before - released);
                if smallest_pieces && spare == 0 {
                    assert_eq!(
                        scene.arena.reserved_bytes(),
                        scene.live_pages(),
                        "no page without a live byte"
                    );
                } else if spare > 0 {
                    assert!(released == 0 || scene.arena.reserved_bytes() >= scene.arena.used() + spare);
                }
                live.iter().for_each(|one| scene.check(one, 0));
            }
            Step::Limit { pages } => match scene.arena.resize(pages * PAGE) {
                Ok(()) => limit = pages * PAGE,
                Err(error) => {
                    let Some(&ArenaError::CapacityInUse { needed_bytes: needed, .. }) = error.arena() else {
                        panic!("{error}")
                    };
                    assert!(needed == scene.arena.reserved_bytes() && needed > pages * PAGE);
                }
            },
            Step::Free { .. } => {}
        }
        assert!(scene.taken() <= limit, "{} bytes of {limit}", scene.taken());
        scene.check_books(&live);
    }
    live.iter().for_each(|one| scene.check(one, 2));
    live.clear();
    scene.check_end();
    stitched
}

#[test]
fn random_histories_spoil_and_lose_nothing() {
    static STITCHED: AtomicU64 = AtomicU64::new(0);
    proptest!(ProptestConfig::with_cases(300), |(
        limit in prop_oneof![Just(1u64 << 30), (8..60u64).prop_map(|pages| pages * PAGE)],
        smallest_pieces in any::<bool>(),
        steps in prop::collection::vec(step(), 1..150),
    )| {
        let pieces = if smallest_pieces { PAGE } else { u64::MAX };
        let stitched = run(scene(|builder| builder.limit(limit).piece_bytes(pieces)), limit, smallest_pieces, steps);
        STITCHED.fetch_add(stitched, Ordering::Relaxed);
    });
    let stitched = STITCHED.load(Ordering::Relaxed);
    assert!(stitched > 100, "{stitched} stitched blocks");
}
