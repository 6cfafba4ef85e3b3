//! A process whose table of mappings is full: requests are out of memory, threads can be made, and all works
//! on when something is freed.
//!
//! Alone in its program, because the table is the process's.

use vrampool::arena::DeviceArena;
use vrampool::backend::AllocationRequest;
use vrampool::host::HostDevice;
use vrampool::{Backend, MemoryKind};

const PAGE: u64 = 4096;

#[test]
fn a_full_table_of_mappings_is_out_of_memory_until_something_is_freed() {
    let device = HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build();
    let Some(mapper) = device.virtual_memory() else {
        vrampool_test_support::skipped("the host has no virtual memory on this system");
        return;
    };
    let stream = device.create_stream().expect("a stream");
    let arena = DeviceArena::builder(&device).growing().limit(64 * PAGE).build().expect("an arena");
    let before = arena.allocate(4 * PAGE, &stream).expect("memory");
    let page = mapper.create_physical(&AllocationRequest::new(PAGE, MemoryKind::default())).expect("memory");
    let others = mapper.reserve(1 << 34).expect("addresses");
    // Every other page: neither mappings nor gaps can be joined.
    let full = (0u64..1 << 20).find_map(|number| mapper.map(&others, 2 * number * PAGE, &page).err());
    assert!(full.expect("the table has a bound").is_out_of_memory());
    let refused = arena.allocate(32 * PAGE, &stream).expect_err("there is no mapping for it");
    assert!(refused.is_out_of_memory(), "{refused}");
    assert_eq!(arena.reserved_bytes(), 4 * PAGE, "nothing is left of it");
    std::thread::spawn(|| ()).join().expect("a thread can be made");
    drop(before);
    assert_eq!(arena.release(0).expect("unmapping takes none"), 4 * PAGE);
    drop(others);
    drop(arena.allocate(32 * PAGE, &stream).expect("the table has room again"));
    assert_eq!(arena.release(0).expect("no fault"), 32 * PAGE);
}
