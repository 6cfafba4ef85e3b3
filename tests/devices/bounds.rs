//! A virtual pool's use of the process stays within its bounds, for traffic at its limit.

use crate::there;
use fastrand::Rng;
use vrampool::backend::Capabilities;
use vrampool::{Backend, Buffer, Pool, Source};

const OPERATIONS: u32 = 2000;
/// Pages of the limit.
const PAGES: u64 = 64;

#[test]
fn a_virtual_pool_at_its_limit_keeps_its_bounds() {
    there::on_each(|there| {
        if !there.can(Capabilities::VIRTUAL_MEMORY) {
            return vrampool_test_support::skipped(format_args!("{} has no virtual memory", there.name));
        }
        let virtual_memory = there.device.virtual_memory().expect("it says so");
        let streams: [_; 2] = there.streams();
        let page = virtual_memory.granularity(Default::default()).expect("a size");
        let limit = PAGES * page;
        let pool = Pool::builder(&there.device).source(Source::Virtual).limit(limit).cached_class(0);
        let pool = pool.build().expect("a pool");
        let own = pool.stats().virtual_memory.address_bytes;
        let mut random = Rng::with_seed(7);
        let mut live: Vec<Buffer<_>> = Vec::new();
        let (mut refused, mut stitched) = (0, 0);
        for _ in 0..OPERATIONS {
            if !live.is_empty() && random.u8(..9) < 4 {
                live.swap_remove(random.usize(..live.len()));
                continue;
            }
            let bytes = random.u64(page / 2..8 * page);
            match pool.allocate(bytes, &streams[random.usize(..2)]) {
                Ok(buffer) => live.push(buffer),
                Err(error) => {
                    assert!(error.is_out_of_memory(), "{}: {error}", there.name);
                    refused += 1;
                    live.swap_remove(random.usize(..live.len()));
                }
            }
            let stats = pool.stats();
            stitched = stats.virtual_memory.stitched_ranges.max(stitched);
            assert!(stats.reserved_bytes <= limit, "{}: {stats:?}", there.name);
            assert!(stats.virtual_memory.mappings <= 4 * PAGES + 1024, "{}: {stats:?}", there.name);
            assert!(stats.virtual_memory.address_bytes <= 8 * limit, "{}: {stats:?}", there.name);
        }
        assert!(refused > OPERATIONS / 50 && stitched > 0, "{}: {refused}, {stitched}", there.name);
        drop(live);
        pool.trim().expect("a trim");
        let stats = pool.stats();
        let left = (
            stats.reserved_bytes,
            stats.virtual_memory.mappings,
            stats.virtual_memory.stitched_ranges,
            stats.virtual_memory.address_bytes,
        );
        assert_eq!(left, (0, 0, 0, own), "{}", there.name);
    });
}
