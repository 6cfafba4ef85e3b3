//! Requests of a pool that is closed.

use crate::{Answer, KIB, LONG, pool_of, until_waiting};
use std::thread;
use std::time::Duration;
use vrampool::{Backend, Error};

#[test]
fn a_closed_pool_refuses_all_and_keeps_nothing() -> Answer {
    for bytes in [4 * KIB, 8 << 20] {
        let (device, pool, stream) = pool_of(4, bytes)?;
        let live: Vec<_> = (0..4).map(|_| pool.allocate(bytes, &stream)).collect::<Result<_, _>>()?;
        let mut live = live.into_iter();
        drop(live.next());
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..3)
                .map(|number| {
                    let (pool, stream) = (&pool, &stream);
                    let thread =
                        scope.spawn(move || pool.allocate_timeout(4 * bytes, stream, LONG).map(drop));
                    until_waiting(pool, number + 1);
                    thread
                })
                .collect();
            assert!(!pool.is_closed());
            pool.close();
            for thread in waiting {
                assert!(matches!(thread.join().expect("no panic"), Err(Error::Closed)));
            }
        });
        assert!(pool.is_closed());
        assert!(matches!(pool.allocate(bytes, &stream), Err(Error::Closed)));
        assert!(matches!(pool.allocate_timeout(bytes, &stream, LONG), Err(Error::Closed)));
        assert!(matches!(
            pool.allocate_kind(bytes, vrampool::Placement::HostVisible, &stream),
            Err(Error::Closed)
        ));
        assert_eq!(device.taken(), 3 * bytes, "buffers stay");
        drop(live);
        assert_eq!((device.taken(), pool.stats().held_bytes), (0, 0));
    }
    Ok(())
}

/// Random requests of several threads, with and without waiting, over a close: each ends as it may, the limit
/// holds, and nothing is lost.
#[test]
fn random_requests_and_a_close_lose_nothing() -> Answer {
    for seed in 0..40 {
        let (device, pool, _) = pool_of(8, 64 * KIB)?;
        thread::scope(|scope| {
            for number in 0..4 {
                let (pool, device) = (&pool, &device);
                scope.spawn(move || {
                    let stream = device.create_stream().expect("a stream");
                    let mut random = fastrand::Rng::with_seed(seed * 4 + number);
                    let mut live = Vec::new();
                    for _ in 0..400 {
                        let bytes = random.u64(1..=192 * KIB);
                        let answer = match random.u8(..4) {
                            0 if !live.is_empty() => {
                                live.swap_remove(random.usize(..live.len()));
                                continue;
                            }
                            1 => pool.allocate_timeout(
                                bytes,
                                &stream,
                                Duration::from_micros(random.u64(..300)),
                            ),
                            _ => pool.allocate(bytes, &stream),
                        };
                        match answer {
                            Ok(buffer) => live.push(buffer),
                            Err(Error::Closed) => return,
                            Err(error) => assert!(error.is_out_of_memory(), "{error}"),
                        }
                        assert!(pool.limit().is_some_and(|limit| device.taken() <= limit));
                        if live.len() > 4 {
                            live.clear();
                        }
                    }
                    if number == 0 {
                        pool.close();
                    }
                });
            }
        });
        assert_eq!(pool.waiting_requests(), 0, "seed {seed}");
        // A call of the driver may outlast its request.
        while (pool.stats().live_buffers, pool.stats().in_transit_bytes) != (0, 0) {
            thread::yield_now();
        }
        pool.close();
        assert_eq!((pool.stats().held_bytes, device.taken()), (0, 0), "seed {seed}");
    }
    Ok(())
}
