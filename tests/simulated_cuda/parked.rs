//! A thread that makes no call keeps nothing of the arena of a dropped pool.

use crate::simulated::Simulated;
use std::sync::mpsc::channel;
use std::thread;
use vrampool::{Backend, Pool, Source};

#[test]
fn a_parked_thread_keeps_no_arena() {
    let Some(simulated) = Simulated::open() else { return };
    let device = &simulated.device;
    let free = || device.memory_info().expect("figures").free_bytes;
    let stream = device.create_stream().expect("a stream");
    for source in [Source::Arena, Source::Virtual] {
        // Another thread may still free what the test before left, so more may be free afterwards.
        let before = free();
        let pool = Pool::builder(device).source(source).limit(32 << 20).build().expect("a pool");
        let ((parks, is_parked), (go, going)) = (channel(), channel::<()>());
        thread::scope(|scope| {
            let (stream, of_thread) = (stream.clone(), pool.clone());
            scope.spawn(move || {
                drop(of_thread.allocate(1000, &stream).expect("memory"));
                drop(of_thread);
                parks.send(()).expect("it listens");
                let _ = going.recv();
            });
            is_parked.recv().expect("it works");
            assert!(pool.stats().held_bytes > 0, "{source}");
            drop(pool);
            assert!(free() >= before, "{source}");
            drop(go);
        });
        assert!(free() >= before, "{source}");
    }
}
