//! Bounds that hold for any traffic: mappings, addresses, and refusals only where memory is short. No request
//! waits on the host for another thread's release.

use super::streams::stall;
use super::{PAGE, Scene, scene};
use fastrand::Rng;
use vrampool::Backend;
use vrampool::arena::{SpanState, Zone};
use vrampool::host::Call;
use vrampool_test_support::until;

impl Scene {
    fn check_bounds(&self, limit: u64) {
        let pages = limit / PAGE;
        let (mappings, addresses) = (self.arena.mappings(), self.arena.address_bytes());
        assert!(mappings <= 4 * pages + 1024, "{mappings} mappings for {pages} pages");
        assert!(addresses <= 8 * limit, "{addresses} bytes of addresses for {limit}");
        assert!(self.arena.reserved_bytes() <= limit);
    }
}

/// Of pages of one piece each: the free bytes at the ends of the pages that are live in part, and how many
/// are free as a whole.
fn pages(scene: &Scene) -> (u64, Vec<(u64, u64)>) {
    let free: Vec<_> = scene
        .arena
        .blocks()
        .iter()
        .filter(|span| matches!(span.state, SpanState::Free))
        .map(|span| span.offset..span.offset + span.bytes)
        .collect();
    let (mut whole, mut ends) = (0, Vec::new());
    for page in scene.arena.mapped().into_iter().flat_map(|run| run.step_by(PAGE as usize)) {
        let at = |offset: u64| free.iter().find(|hole| hole.contains(&offset));
        let front = at(page).map_or(0, |hole| hole.end.min(page + PAGE) - page);
        let back = at(page + PAGE - 1).map_or(0, |hole| page + PAGE - hole.start.max(page));
        match front {
            PAGE => whole += 1,
            _ => ends.push((back, front)),
        }
    }
    (whole, ends)
}

#[test]
fn a_request_is_refused_only_where_free_pages_do_not_suffice() {
    let mut refused = 0;
    for seed in 0..20 {
        let limit = 64 * PAGE;
        let scene = scene(|builder| builder.limit(limit).piece_bytes(PAGE));
        let mut random = Rng::with_seed(seed);
        let mut live = Vec::new();
        for _ in 0..600 {
            if !live.is_empty() && random.u8(..9) < 4 {
                live.swap_remove(random.usize(..live.len()));
                continue;
            }
            let bytes = random.u64(PAGE / 2 + 1..24 * PAGE);
            let Err(error) = scene.arena.allocate(bytes, &scene.streams[0]).map(|buffer| live.push(buffer))
            else {
                continue;
            };
            assert!(error.is_out_of_memory(), "{error}");
            refused += 1;
            let (whole, ends) = pages(&scene);
            let room = (limit - scene.arena.reserved_bytes()) / PAGE;
            let of_two = |(number, &(back, _)): (usize, &(u64, u64))| {
                let others = ends.iter().enumerate().filter(|(other, _)| *other != number);
                back + others.map(|(_, &(_, front))| front).max().unwrap_or(0)
            };
            let at_ends = ends.iter().enumerate().map(of_two).max().unwrap_or(0);
            let there = (whole + room) * PAGE + at_ends;
            assert!(there < bytes, "seed {seed}: {bytes} bytes were refused, and {there} were there");
        }
    }
    assert!(refused > 100, "{refused} requests were refused");
}

#[test]
fn an_allocation_does_not_wait_for_a_release_of_another_thread() {
    let (device, arena, [slow, other, _]) = super::streams::scene(64, true);
    let block = arena.allocate(8 * PAGE, &slow).expect("memory");
    let (go, heard) = stall(&slow);
    drop(block);
    std::thread::scope(|scope| {
        let release = scope.spawn(|| arena.release(0));
        until(|| device.faults().calls(Call::Synchronize) > 0);
        let more = arena.allocate(16 * PAGE, &other).expect("there is room");
        go.send(()).expect("it listens");
        release.join().expect("no panic").expect("no fault");
        drop(more);
    });
    device.synchronize(&slow).expect("no fault");
    assert_eq!(*heard.lock().expect("no panic"), Some(Ok(())), "the allocation waited for the release");
}

/// A thread that uses memory again while another waits to release it keeps it.
#[test]
fn a_release_leaves_what_was_used_meanwhile() {
    let (device, arena, [slow, _, _]) = super::streams::scene(8, true);
    drop(arena.allocate(8 * PAGE, &slow).expect("memory"));
    let (go, _) = stall(&slow);
    std::thread::scope(|scope| {
        let release = scope.spawn(|| arena.release(0));
        until(|| device.faults().calls(Call::Synchronize) > 0);
        let mut again = arena.allocate(8 * PAGE, &slow).expect("it is free, and the stream's own");
        go.send(()).expect("it listens");
        again.write(&[7; 8 << 12], &slow).expect("no fault");
        assert_eq!(release.join().expect("no panic").expect("no fault"), 0);
        let mut bytes = vec![0; 8 << 12];
        again.read(&mut bytes, &slow).expect("no fault");
        assert!(bytes.iter().all(|&byte| byte == 7));
    });
    assert_eq!(arena.release(0).expect("no fault"), 8 * PAGE);
}

#[test]
fn pages_of_small_requests_serve_a_large_one_without_a_wait() {
    let (device, arena, [slow, other, _]) = super::streams::scene(8, true);
    let small: Vec<_> = (0..32).map(|_| arena.allocate(PAGE / 4, &slow).expect("memory")).collect();
    assert!(small.iter().all(|block| arena.used_in(Zone::Stable) > 0 && block.len() == PAGE / 4));
    let (go, heard) = stall(&slow);
    drop(small);
    let large = arena.allocate(6 * PAGE, &other).expect("all of it is free");
    go.send(()).expect("it listens");
    device.synchronize(&slow).expect("no fault");
    assert_eq!(*heard.lock().expect("no panic"), Some(Ok(())), "the host waited");
    drop(large);
    arena.release(0).expect("no fault");
    assert_eq!((arena.reserved_bytes(), arena.mappings()), (0, 0));
}

#[test]
fn blocks_keep_addresses_and_contents_when_a_limit_is_raised() {
    let scene = scene(|builder| builder.limit(16 * PAGE));
    let mut all: Vec<_> = (0..4).map(|n| scene.live(3 * PAGE, 0, n).expect("memory")).collect();
    let base = scene.arena.base();
    scene.arena.resize(1000 * PAGE).expect("it is raised");
    all.push(scene.live(900 * PAGE, 1, 77).expect("there are addresses"));
    assert_ne!(scene.arena.base(), base, "it has another range");
    scene.check_bounds(1000 * PAGE);
    // Where it was there is nothing behind it to grow into.
    let seed = all[3].seed;
    all[3].buffer.resize(5 * PAGE, &scene.streams[0]).expect("there is room");
    let mut kept = vec![0; 3 << 12];
    all[3].buffer.read(&mut kept, &scene.streams[0]).expect("no fault");
    assert!(kept == super::pattern(seed, 3 * PAGE));
    scene.write(&mut all[3], 0, seed);
    all.iter().for_each(|one| scene.check(one, 0));
    scene.check_books(&all);
    all.remove(1);
    scene.arena.release(0).expect("no fault");
    all.iter().for_each(|one| scene.check(one, 2));
    all.clear();
    scene.arena.release(0).expect("no fault");
    assert_eq!(scene.arena.mappings(), 0);
    scene.check_end();
}
