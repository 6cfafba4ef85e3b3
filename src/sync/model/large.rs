//! Large blocks, which threads keep in slots that others can empty.

use super::{Caps, ROOMY, Scene, explore, spawn};
use std::sync::Arc;

/// A scene whose first thread has had pairs of requests and frees, so that it has a slot.
fn warm(caps: Caps) -> Arc<Scene> {
    let scene = Scene::with_magazines(caps, 0);
    for _ in 0..3 {
        drop(scene.allocate().expect("the limit has room"));
    }
    scene
}

/// A request gets the block that another thread's slot has, and nothing is allocated for it.
#[test]
fn a_large_block_is_within_reach() {
    explore(None, || {
        let scene = warm(Caps { cached: 1, bucket: 1, limit: 1 });
        let other = spawn({
            let scene = Arc::clone(&scene);
            move || drop(scene.allocate().expect("it is idle"))
        });
        scene.observe();
        other.join().expect("no panic");
        drop(scene.allocate().expect("it is idle"));
        let stats = scene.pool.stats();
        assert_eq!((stats.hits, stats.source.allocations), (4, 1), "{stats:?}");
        scene.rest(0);
    });
}

/// Two threads have pairs, one of them from its slot, and the caps have room for one idle block.
#[test]
fn large_pairs() {
    explore(Some(4), || {
        let scene = warm(Caps { cached: 1, bucket: 1, limit: 2 });
        let other = spawn({
            let scene = Arc::clone(&scene);
            move || {
                for _ in 0..2 {
                    drop(scene.allocate().expect("the limit has room for both"));
                }
            }
        });
        drop(scene.allocate().expect("the limit has room for both"));
        scene.observe();
        drop(scene.allocate().expect("the limit has room for both"));
        other.join().expect("no panic");
        let stats = scene.pool.stats();
        assert_eq!(stats.hits + stats.misses, 7, "{stats:?}");
        scene.rest(0);
    });
}

/// A trim returns what slots have. What a borrower of a slot has comes back.
#[test]
fn trim_of_large_blocks() {
    explore(None, || {
        let scene = warm(ROOMY);
        let other = spawn({
            let scene = Arc::clone(&scene);
            move || {
                scene.pool.trim().expect("a trim");
                scene.observe();
            }
        });
        drop(scene.allocate());
        drop(scene.allocate());
        other.join().expect("no panic");
        scene.rest(0);
    });
}

/// The last handle is dropped while another thread has a block of its slot.
#[test]
fn pool_drop_beside_large_blocks() {
    explore(None, || {
        let scene = warm(ROOMY);
        let (taken, stream) = (Arc::clone(&scene.taken), scene.stream.clone());
        let pool = Arc::into_inner(scene).expect("nobody else has it").pool;
        let live = pool.allocate(super::CLASS, &stream).expect("memory");
        let other = spawn(move || drop(pool));
        drop(live);
        other.join().expect("no panic");
        assert_eq!(taken.load(std::sync::atomic::Ordering::SeqCst), 0, "all of it is returned");
    });
}
