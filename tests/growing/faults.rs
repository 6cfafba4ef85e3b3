//! Every call of the device fails once, in each kind of change: nothing is lost, and the same request works
//! afterwards.

use super::{Live, PAGE, Scene, scene};
use vrampool::BackendError;
use vrampool::host::Call;

/// Each of the calls that growing, stitching and releasing make.
const CALLS: [Call; 5] = [Call::Reserve, Call::CreatePhysical, Call::Map, Call::SetAccess, Call::Unmap];

/// Does it, again if it fails, and looks at everything after each failure.
fn twice<T>(
    scene: &Scene,
    live: &[Live],
    failures: &mut u32,
    what: impl Fn() -> Result<T, vrampool::Error>,
) -> T {
    what().unwrap_or_else(|error| {
        *failures += 1;
        assert!(!error.is_out_of_memory(), "{error}");
        scene.check_books(live);
        live.iter().for_each(|one| scene.check(one, 0));
        let faults = scene.device.inner().faults();
        faults.clear();
        what().expect("it works once nothing fails")
    })
}

/// Grows, stitches with and without new pieces, releases under a live stitched block, and fills gaps. Answers
/// the failures that were seen, and how many blocks were stitched.
fn history(scene: &Scene, arm: impl FnOnce()) -> (u32, u32) {
    let (mut failures, mut stitched, mut live) = (0, 0, Vec::<Live>::new());
    arm();
    let mut take = |live: &mut Vec<Live>, pages: u64, failures: &mut u32| {
        let seed = live.len() as u64 + pages;
        let buffer = twice(scene, live, failures, || scene.arena.allocate(pages * PAGE, &scene.streams[0]));
        let mut one = Live { buffer, seed, address: 0 };
        scene.write(&mut one, 0, seed);
        stitched += u32::from(one.is_stitched(scene));
        live.push(one);
        scene.check_books(&*live);
    };
    for _ in 0..24 {
        take(&mut live, 4, &mut failures);
    }
    // Holes of four pages, none of which touch.
    live = live.into_iter().skip(1).step_by(2).collect();
    // Of holes alone, and of all holes with new pieces.
    take(&mut live, 10, &mut failures);
    take(&mut live, 50, &mut failures);
    // A stitched block stays while holes around it go.
    live.remove(live.len() - 2);
    twice(scene, &live, &mut failures, || scene.arena.release(2 * PAGE));
    scene.check_books(&live);
    take(&mut live, 14, &mut failures);
    live.drain(..6);
    twice(scene, &live, &mut failures, || scene.arena.release(0));
    scene.check_books(&live);
    take(&mut live, 9, &mut failures);
    live.iter().for_each(|one| scene.check(one, 0));
    live.clear();
    twice(scene, &[], &mut failures, || scene.arena.release(0));
    assert_eq!((scene.taken(), scene.arena.reserved_bytes()), (0, 0));
    (failures, stitched)
}

fn make() -> Scene {
    scene(|builder| builder.limit(1000 * PAGE).piece_bytes(2 * PAGE))
}

#[test]
fn every_single_call_may_fail() {
    let (failures, stitched) = history(&make(), || {});
    assert!(failures == 0 && stitched >= 2, "{failures} failures, {stitched} stitched");
    for call in CALLS {
        let mut n = 0;
        loop {
            n += 1;
            let scene = make();
            let calls = scene.device.inner().faults().calls(call);
            let (failures, _) = history(&scene, || scene.device.inner().faults().fail_nth(call, n));
            assert!(failures <= 1);
            let was_reached = scene.device.inner().faults().calls(call) >= calls + n;
            assert_eq!(failures == 1, was_reached, "{call:?} {n}");
            scene.check_end();
            if !was_reached {
                break;
            }
        }
        assert!(n > if call == Call::Reserve { 2 } else { 10 }, "{call:?}: {n}");
    }
}

/// Memory that was mapped for a failed request, and cannot be unmapped, is counted, and released by the next
/// release.
#[test]
fn memory_that_cannot_be_unmapped_is_not_lost() {
    for call in [Call::CreatePhysical, Call::Map, Call::SetAccess] {
        for (n, at_gap) in [(1, false), (2, false), (3, false), (1, true), (2, true), (3, true)] {
            let scene = make();
            let mut low = vec![scene.live(30 * PAGE, 0, 1).expect("memory")];
            let live = [scene.live(3 * PAGE, 0, 2).expect("memory")];
            low.clear();
            let faults = scene.device.inner().faults();
            if at_gap {
                assert_eq!(scene.arena.release(0).expect("no fault"), 30 * PAGE);
            } else {
                low.push(scene.live(30 * PAGE, 0, 3).expect("memory"));
            }
            let all = || low.iter().chain(&live);
            let before = scene.taken();
            faults.fail_nth(call, n);
            faults.fail_nth(Call::Unmap, 1);
            let failed = scene.arena.allocate(20 * PAGE, &scene.streams[0]);
            if failed.is_ok() {
                // There are not so many calls of the kind.
                assert_eq!(call, Call::SetAccess);
                continue;
            }
            assert_eq!(scene.taken(), scene.arena.reserved_bytes(), "{call:?} {n}");
            assert_eq!(scene.taken() > before, n > 1 || call == Call::SetAccess, "{call:?} {n}");
            faults.clear();
            let next = scene.live(20 * PAGE, 0, 4).expect("it works all the same");
            scene.check_books(all().chain([&next]));
            all().chain([&next]).for_each(|one| scene.check(one, 0));
            // The memory stays mapped when unmapping fails once more.
            let mapped = scene.taken();
            faults.fail_nth(Call::Unmap, 1);
            let refused = scene.arena.release(0);
            assert_eq!(refused.is_err(), n > 1 || call == Call::SetAccess);
            scene.check_books(all().chain([&next]));
            assert_eq!(refused.is_err(), scene.taken() == mapped && mapped > scene.live_pages());
            faults.clear();
            scene.arena.reset().expect("no region");
            drop((low, live, next));
            scene.check_books([]);
            scene.check_end();
        }
    }
}

/// The device has no more memory in the middle of a growth.
#[test]
fn a_device_without_memory_is_stitched_around_or_an_error_that_changes_nothing() {
    for spare in 0..24 {
        let scene = make();
        let mut live: Vec<Live> = (0..20).map(|n| scene.live(4 * PAGE, 0, n).expect("memory")).collect();
        let mut nth = 0;
        live.retain(|_| {
            nth += 1;
            nth % 4 != 0
        });
        // Five holes, and `spare` pages of the device's.
        scene.device.inner().set_memory_limit(scene.taken() + spare * PAGE);
        let before = scene.taken();
        let one = scene.live(24 * PAGE, 0, 77);
        match one {
            Ok(one) => {
                assert!(spare >= 4, "{spare}");
                scene.check(&one, 0);
                live.push(one);
            }
            Err(error) => {
                assert!(error.is_out_of_memory() && spare < 24, "{error}");
                assert!(matches!(error.backend(), Some(BackendError::OutOfMemory { .. })), "{error}");
                assert_eq!(scene.taken(), before);
            }
        }
        scene.check_books(&live);
        live.iter().for_each(|one| scene.check(one, 0));
        // Of the holes alone.
        let is_there = live.len() > 15;
        let all = scene.live(20 * PAGE, 0, 78);
        assert_eq!(all.is_ok(), !is_there || spare >= 24, "{spare}: {:?}", all.err());
        scene.device.inner().set_memory_limit(1 << 30);
        live.extend(all);
        scene.check_books(&live);
        drop(live);
        scene.check_end();
    }
}

/// A request too small to be stitched without need is, once the device has no more.
#[test]
fn a_small_request_is_stitched_when_the_device_has_no_more() {
    let scene = scene(|builder| builder.piece_bytes(PAGE));
    let mut live: Vec<Live> = (0..12).map(|n| scene.live(PAGE, 0, n).expect("memory")).collect();
    live.remove(8);
    live.remove(3);
    scene.device.inner().set_memory_limit(scene.taken());
    let one = scene.live(2 * PAGE - 300, 1, 40).expect("two holes");
    assert!(one.is_stitched(&scene));
    live.push(one);
    scene.check_books(&live);
    live.iter().for_each(|one| scene.check(one, 0));
    let refused = scene.live(1, 0, 41);
    assert!(refused.is_ok(), "what is left of the holes");
}
