//! Arenas in a forked child: every call fails typed or reports nothing, drops do
//! nothing, and nothing waits. `forks` has pools, `forked_drivers` objects of drivers.
#![cfg(all(feature = "host", target_os = "linux"))]

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool::arena::{Attachment, DeviceArena, Zone};
use vrampool::backend::fork::ForkArc;
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool};
use vrampool_test_support::{assert_forked, end_at_once, in_child_that_ends, while_busy};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Notes its drop.
struct Noted<'a>(&'a AtomicBool);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_child_drops_no_value_of_a_fork_handle() {
    let device = HostDevice::new();
    let _stream = device.create_stream().expect("a stream");
    let is_dropped = AtomicBool::new(false);
    let mut handle = Some(ForkArc::new(Noted(&is_dropped)));
    let act = || {
        drop(handle.take());
        assert!(!is_dropped.load(Ordering::Relaxed));
    };
    in_child_that_ends(act, end_at_once);
    drop(handle.expect("the parent's"));
    assert!(is_dropped.load(Ordering::Relaxed));
}

#[test]
fn an_arena_reports_nothing_in_a_child() {
    for is_growing in [false, true] {
        let device = HostDevice::builder().memory_limit(64 * MIB).build();
        let stream = device.create_stream().expect("a stream");
        let builder = DeviceArena::builder(&device).limit(16 * MIB);
        let arena = if is_growing { builder.growing() } else { builder }.build().expect("an arena");
        let mut mine = ManuallyDrop::new((arena.allocate(MIB, &stream).expect("memory"), arena.clone()));
        let work = |_| drop(arena.allocate(KIB, &stream).map(|block| (block.offset(), arena.used())));
        while_busy(work, 20, || {
            let act = || {
                let (block, arena) = &mut *mine;
                let bytes = [arena.capacity(), arena.used(), arena.peak_used(), arena.reserved_bytes()];
                assert_eq!(bytes, [0; 4]);
                assert_eq!([arena.highest_end(), arena.address_bytes(), arena.mappings()], [0; 3]);
                let of_region = [DeviceArena::capacity_of, DeviceArena::used_in, DeviceArena::available];
                assert_eq!(of_region.map(|figure| figure(arena, Zone::Dynamic)), [0; 3]);
                assert_eq!((arena.alignment(), arena.align_up(5), arena.base()), (1, Some(5), None));
                assert_eq!((arena.attachment(), arena.is_growing()), (Attachment::Detached, false));
                assert!(arena.blocks().is_empty() && arena.mapped().is_empty());
                assert_forked(block.offset());
                assert_forked(block.resize(2 * MIB, &stream));
                assert_forked(arena.compact(1, &stream, |_| {}));
                assert_forked(arena.resize(MIB));
                assert_eq!((block.parts(), block.address()), (Vec::new(), None));
                // SAFETY: this process drops them here and ends, and the parent drops its own.
                unsafe { ManuallyDrop::drop(&mut mine) };
            };
            in_child_that_ends(act, end_at_once);
        });
        let (block, _) = ManuallyDrop::into_inner(mine);
        assert_eq!(arena.used(), block.capacity());
    }
}

#[test]
fn the_memory_of_a_graph_refuses_a_child() {
    let device = HostDevice::builder().memory_limit(64 * MIB).build();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::shared(&device).expect("a pool");
    let graph = pool.child("graph").private(true).build().expect("a pool");
    let of_graph = graph.allocate(KIB, &stream).expect("memory");
    let mut target = pool.allocate(MIB, &stream).expect("memory");
    let mut mine = ManuallyDrop::new((graph, of_graph, pool.clone()));
    while_busy(
        |_| drop(pool.allocate(KIB, &stream).expect("memory")),
        10,
        || {
            let act = || {
                let (graph, _, _) = &mut *mine;
                assert_forked(graph.allocate(KIB, &stream));
                assert_forked(graph.used_on(&stream));
                assert_forked(Pool::shared(&device));
                assert_eq!(graph.stats().idle_bytes, 0);
                assert_forked(target.on_mut(&stream).map(drop));
                // SAFETY: this process drops them here and ends, and the parent drops its own.
                unsafe { ManuallyDrop::drop(&mut mine) };
            };
            in_child_that_ends(act, end_at_once);
        },
    );
    let (graph, of_graph, _) = ManuallyDrop::into_inner(mine);
    drop(of_graph);
    assert_eq!(graph.stats().idle_bytes, KIB);
}
