//! Virtual memory in a process whose address space is used up: what takes addresses is out of memory, and all
//! works on when something is freed. The process runs this program again.
#![cfg(target_os = "linux")]

use vrampool::arena::DeviceArena;
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, Source};
use vrampool_test_support::{is_inside, passed, test_behind};

const MIB: u64 = 1 << 20;
const PAGE: u64 = MIB;

#[test]
fn a_full_address_space_is_out_of_memory_until_something_is_freed() {
    if !is_inside() {
        let name = "a_full_address_space_is_out_of_memory_until_something_is_freed";
        passed(test_behind("ulimit -v 3000000", name).arg("--test-threads=1"));
        return;
    }
    let device = HostDevice::builder().memory_limit(64 << 30).granularity(PAGE).build();
    let Some(mapper) = device.virtual_memory() else {
        return vrampool_test_support::skipped("the host has no virtual memory on this system");
    };
    let stream = device.create_stream().expect("a stream");
    let limit = 64 * PAGE;
    let builder = || Pool::builder(&device).source(Source::Virtual).limit(limit).cached_class(0);
    let pool = builder().build().expect("there are addresses");
    // It would have addresses for all of the device, whose limit may be raised, and does with fewer.
    drop(pool.child("graph").private(true).build().expect("there are addresses for its limit"));
    let mut others = Vec::new();
    let mut use_up = |bytes: &[u64]| {
        bytes.iter().for_each(|&bytes| others.extend(std::iter::from_fn(|| mapper.reserve(bytes).ok())));
    };
    // Half of what it asks for first, so that its part for large requests has none to spare.
    let room = mapper.reserve(128 * PAGE).expect("there are addresses");
    use_up(&[256 * PAGE, 16 * PAGE]);
    drop(room);
    let arena = DeviceArena::builder(&device).growing().limit(limit).piece_bytes(PAGE);
    let arena = arena.build().expect("there are some addresses");
    assert_eq!(arena.address_bytes(), 96 * PAGE);
    // Every other page of it stays free: a larger request is stitched, for which it takes addresses.
    let blocks: Vec<_> = (0..64).map(|_| arena.allocate(PAGE, &stream).expect("memory")).collect();
    let kept: Vec<_> = blocks.into_iter().step_by(2).collect();
    use_up(&[16 * PAGE, PAGE]);
    let refused = arena.allocate(16 * PAGE, &stream).expect_err("there are no addresses");
    assert!(refused.is_out_of_memory(), "{refused:?}");
    pool.set_limit(8 * limit).expect("nothing is reserved for it yet");
    let refused = pool.allocate(8 * limit, &stream).expect_err("there are no addresses");
    assert!(refused.is_out_of_memory(), "{refused:?}");
    let refused = builder().build().expect_err("there are no addresses");
    assert!(refused.is_out_of_memory(), "{refused:?}");
    // Requests that need no addresses succeed.
    let block = pool.allocate(16 * PAGE, &stream).expect("it has addresses of its own");
    drop(others);
    drop(arena.allocate(16 * PAGE, &stream).expect("there are addresses again"));
    drop(pool.allocate(7 * limit, &stream).expect("there are addresses again"));
    drop((block, kept));
    pool.trim().expect("a trim");
    assert_eq!((pool.stats().reserved_bytes, pool.stats().virtual_memory.mappings), (0, 0));
    arena.release(0).expect("no fault");
    assert_eq!((arena.reserved_bytes(), arena.mappings()), (0, 0));
}
