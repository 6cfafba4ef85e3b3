//! Warm requests are served by the pool alone, whichever source serves misses.

use crate::there;
use crate::{KIB, MIB};
use vrampool::{Backend, Pool};
use vrampool_test_support::AuditDevice;

const LIMIT: u64 = 64 * MIB;
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
