//! Several threads allocate, write, free, release and decay at once.

use super::{PAGE, pattern, scene};
use fastrand::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vrampool::Backend;

const LIMIT: u64 = 200 * PAGE;

#[test]
fn threads_spoil_nothing_and_stay_within_the_limit() {
    for seed in 0..4 {
        let scene =
            scene(|builder| builder.limit(LIMIT).piece_bytes(if seed % 2 == 0 { PAGE } else { u64::MAX }));
        let (device, arena) = (&scene.device, &scene.arena);
        let (done, released) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (done, released) = (&done, &released);
            let work = |nth: u64| {
                let (stream, mut random) =
                    (device.create_stream().expect("a stream"), Rng::with_seed(seed * 10 + nth));
                let (mut live, mut served) = (Vec::new(), 0);
                // More of them until something was released: the releasing thread may start after the first steps.
                for step in 0..100_000u64 {
                    if step >= 1500 && released.load(Ordering::Relaxed) > 0 {
                        break;
                    }
                    let bytes =
                        if random.u8(..4) == 0 { random.u64(1..20 * PAGE) } else { random.u64(1..2 * PAGE) };
                    match arena.allocate(bytes, &stream) {
                        Ok(mut buffer) => {
                            buffer.write(&pattern(step, bytes), &stream).expect("no fault");
                            live.push((buffer, step));
                            served += 1;
                        }
                        Err(error) => assert!(error.is_out_of_memory(), "{error}"),
                    }
                    while live.len() > 10 || !live.is_empty() && random.u8(..5) < 2 {
                        let (buffer, written) = live.swap_remove(random.usize(..live.len()));
                        let mut bytes = vec![0; buffer.len() as usize];
                        buffer.read(&mut bytes, &stream).expect("no fault");
                        assert!(bytes == pattern(written, buffer.len()), "spoilt");
                    }
                }
                served
            };
            let workers: Vec<_> = (0..3).map(|nth| scope.spawn(move || work(nth))).collect();
            let releaser = scope.spawn(move || {
                let mut random = Rng::with_seed(seed);
                while !done.load(Ordering::Acquire) {
                    let spare = if random.bool() { 0 } else { random.u64(..50 * PAGE) };
                    let bytes = if random.u8(..4) == 0 { arena.decay() } else { arena.release(spare) };
                    released.fetch_add(bytes.expect("no fault"), Ordering::Relaxed);
                    assert!(arena.reserved_bytes() <= LIMIT);
                    std::thread::yield_now();
                }
            });
            let served: Vec<u64> =
                workers.into_iter().map(|worker| worker.join().expect("nothing is spoilt")).collect();
            done.store(true, Ordering::Release);
            releaser.join().expect("no fault");
            assert!(released.load(Ordering::Relaxed) > 0, "nothing was released, so nothing was tested");
            assert!(served.iter().all(|&served| served > 0), "{served:?}");
        });
        assert!(scene.device.peak() <= LIMIT, "{} bytes at once", scene.device.peak());
        scene.check_end();
    }
}
