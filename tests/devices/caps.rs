//! The caps hold at every instant, whichever source serves misses and however many threads ask.

use crate::there;
use crate::{KIB, MIB};
use fastrand::Rng;
use vrampool::{Backend, Pool};
use vrampool_test_support::AuditDevice;

const LIMIT: u64 = 64 * MIB;
const CACHED: u64 = 8 * MIB;
const PER_BUCKET: u64 = 8;

#[test]
fn the_limit_and_the_cap_on_idle_bytes_hold_under_threads() {
    there::on_each(|there| {
        for source in there.sources() {
            let audit = AuditDevice::new(there.device.clone());
            let builder = Pool::builder(&audit).source(source).limit(LIMIT).max_cached_bytes(CACHED);
            let pool = builder.max_buffers_per_bucket(PER_BUCKET).build().expect("a pool");
            std::thread::scope(|scope| {
                let spawn = |seed| {
                    let (pool, audit) = (&pool, &audit);
                    scope.spawn(move || {
                        let stream = audit.create_stream().expect("a stream");
                        let (mut rng, mut live) = (Rng::with_seed(seed), Vec::new());
                        for _ in 0..2000 {
                            match pool.allocate(there.rounded(rng.u64(..MIB)), &stream) {
                                Ok(mut buffer) => {
                                    let region = buffer.on_mut(&stream).expect("a region");
                                    audit.fill(&stream, region, seed as u8).expect("queued");
                                    live.push(buffer);
                                }
                                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
                            }
                            while live.len() > 12 || (!live.is_empty() && rng.bool()) {
                                live.swap_remove(rng.usize(..live.len()));
                            }
                            let stats = pool.stats();
                            assert!(stats.idle_bytes <= CACHED && stats.held_bytes <= LIMIT, "{stats:?}");
                            assert!(
                                stats.buckets.iter().all(|bucket| bucket.idle_buffers <= PER_BUCKET),
                                "{stats:?}"
                            );
                            assert!(audit.taken() <= LIMIT, "{source}: {} bytes are taken", audit.taken());
                        }
                    })
                };
                // Joined one by one: the end of a scope alone does not wait for the memory that threads release
                // when they end.
                let threads = [0, 1, 2, 3].map(spawn);
                threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            });
            assert!(audit.peak() <= LIMIT, "{source}: {} bytes were taken at once", audit.peak());
            pool.trim().expect("a trim");
            assert_eq!((pool.stats().idle_bytes, pool.stats().live_bytes), (0, 0), "{source}");
            while pool.stats().in_transit_bytes > 0 {
                // Another thread releases what ended threads left.
                std::thread::yield_now();
            }
            drop(pool);
            assert_eq!(audit.taken(), 0, "{source}");
        }
    });
}

#[test]
fn warm_requests_take_nothing_from_the_driver() {
    there::on_each(|there| {
        for source in there.sources() {
            let audit = AuditDevice::new(there.device.clone());
            let pool = Pool::builder(&audit).source(source).limit(LIMIT).build().expect("a pool");
            let stream = audit.create_stream().expect("a stream");
            let step = || {
                for kib in [1, 3, 64, 300] {
                    drop(pool.allocate(kib * KIB, &stream).expect("memory"));
                }
            };
            // Requests of other tests that run out of the same device's memory take this pool's idle memory.
            let evicted = || pool.stats().released.evicted;
            loop {
                step();
                let (before, were_evicted) = ((audit.allocations(), audit.frees()), evicted());
                (0..100).for_each(|_| step());
                if evicted() == were_evicted {
                    assert_eq!((audit.allocations(), audit.frees()), before, "{source}");
                    break;
                }
            }
        }
    });
}
