//! Requests that wait until a deadline.

use super::{CLASS, Caps, Scene, explore, spawn};
use std::sync::Arc;
use std::time::Duration;

/// A request that waits without a deadline is woken by the release that serves it, whenever that comes.
#[test]
fn waiting_request() {
    explore(Some(3), || {
        let scene = Scene::new(Caps { cached: 1, bucket: 1, limit: 1 });
        let held = scene.allocate().expect("the limit has room");
        let other = spawn(move || drop(held));
        let served = scene.pool.allocate_timeout(CLASS, &scene.stream, Duration::MAX);
        drop(served.expect("it waits for ever"));
        other.join().expect("no panic");
        scene.rest(0);
    });
}

/// Two requests wait for one buffer. Each is served, and the first wakes the second.
#[test]
fn two_waiting_requests() {
    explore(Some(2), || {
        let scene = Scene::new(Caps { cached: 1, bucket: 1, limit: 1 });
        let held = scene.allocate().expect("the limit has room");
        let wait = |scene: &Scene| {
            let served = scene.pool.allocate_timeout(CLASS, &scene.stream, Duration::MAX);
            drop(served.expect("it waits for ever"));
        };
        let other = spawn({
            let scene = Arc::clone(&scene);
            move || wait(&scene)
        });
        drop(held);
        // This thread's magazine has the buffer, unless the other one waited already.
        scene.pool.trim().expect("a trim");
        wait(&scene);
        scene.pool.trim().expect("a trim");
        other.join().expect("no panic");
        scene.rest(0);
    });
}
