//! Requests of a pool that is closed.

use crate::{Answer, KIB, LONG, pool_of};
use std::thread;
use vrampool::Error;
use vrampool_test_support::until;

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
                    until(|| pool.waiting_requests() > number);
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
