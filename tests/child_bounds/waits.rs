//! Requests that wait, and other pools of the tree.

use crate::{KIB, device};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use vrampool::{Backend, Pool};

#[test]
fn what_threads_keep_of_another_pool_serves_a_request_that_waits() {
    let device = device();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).limit(1024 * KIB).magazine_bytes(1 << 20).build().expect("a pool");
    let [one, other] = ["one", "other"].map(|name| pool.child(name).build().expect("a pool"));
    let ((takes, is_taken), (go, going)) = (channel(), channel::<()>());
    let (tenant, on) = (&one, &stream);
    thread::scope(|scope| {
        scope.spawn(move || {
            let all: Vec<_> = (0..16).map(|_| tenant.allocate(64 * KIB, on).expect("memory")).collect();
            takes.send(()).expect("it listens");
            let _ = going.recv();
            drop(all);
            // It makes no further call.
            let _ = going.recv();
        });
        is_taken.recv().expect("it took all");
        let waiting = scope.spawn(|| other.allocate_timeout(1000 * KIB, &stream, Duration::from_secs(60)));
        while other.waiting_requests() == 0 {
            thread::yield_now();
        }
        go.send(()).expect("it listens");
        drop(waiting.join().expect("no panic").expect("all of it is free"));
        drop(go);
    });
}
