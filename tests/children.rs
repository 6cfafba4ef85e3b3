//! Memory of a graph has no other owner while the graph lives, and a capture makes no forbidden call.

use proptest::prelude::*;
use vrampool::host::HostDevice;
use vrampool::{Amount, Backend, Buffer, Memory, Pool, SizeClasses};
use vrampool_test_support::{AuditDevice, close_gate};

#[test]
fn a_graphs_memory_is_not_reused_before_the_graph_memory_is_dropped() {
    let device = HostDevice::new();
    let [stream, other] = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let pool = Pool::builder(&device).overlap(Amount::Bytes(0)).build().expect("a pool");
    let memory = pool.child("graph").private(true).build().expect("a pool");
    let buffer = memory.allocate(1000, &stream).expect("memory");
    let place = buffer.on(&stream).expect("a region").address();
    drop(buffer);
    let outsider = pool.allocate(1000, &stream).expect("memory");
    assert_ne!(outsider.memory().address(), place);
    // Launched on another stream, for which the next owner waits.
    memory.used_on(&other).expect("a use");
    let _launched = close_gate(&other);
    let survivor = memory.allocate(5000, &stream).expect("memory");
    drop(memory);
    let waits = pool.stats().stream_waits;
    let _next = pool.allocate(1000, &stream).expect("memory");
    assert_eq!((waits, pool.stats().stream_waits), (1, 1), "the device has its memory back");
    let held = pool.stats().held_bytes;
    drop(survivor);
    assert!(
        pool.stats().held_bytes < held,
        "a buffer that outlived the graph's memory returns to the device"
    );
}

#[test]
fn a_child_finds_blocks_again_that_a_class_borrowed_from_a_larger_one() {
    let device = AuditDevice::new(HostDevice::new());
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).size_classes(SizeClasses::GEOMETRIC).build().expect("a pool");
    let (bytes, larger) = (3 << 20, (3 << 20) + (1 << 19));
    let memory = pool.child("graph").private(true).build().expect("a pool");
    drop(memory.allocate(larger, &stream).expect("memory"));
    let buffer = memory.allocate(bytes, &stream).expect("memory");
    assert_eq!(buffer.capacity(), pool.class_of(larger).expect("a class"), "it is borrowed");
    drop(buffer);
    device.set_capturing(true);
    drop(memory.allocate(bytes, &stream).expect("it has it"));
    device.set_capturing(false);
    // Whatever class the bytes have by the time of the free.
    let buffer = memory.allocate(bytes, &stream).expect("it has it");
    pool.set_limit(1 << 20).expect("no arena refuses it");
    drop((buffer, memory));
    let stats = pool.stats();
    assert_eq!((stats.live_bytes, stats.requested_bytes), (0, 0));
}

/// A model of a child, in lists, and its pool's statistics of the same bytes.
#[derive(Default)]
struct Twin {
    /// Address and class of idle blocks, the last freed last.
    idle: Vec<(u64, u64)>,
    live: Vec<(u64, u64)>,
}

proptest! {
    /// Children share a pool with direct requests to it, in a bucket or a magazine: each gives the block of a class that
    /// it got back last, and nothing else gets it until the child is dropped. All caps of the pool are 0 or none.
    #[test]
    fn children_and_twin_agree(
        is_cached in any::<bool>(),
        magazine_bytes in prop::sample::select(&[0, 1 << 20][..]),
        steps in prop::collection::vec((0..4usize, any::<usize>(), 1..70_000u64, 0..9u8), 0..150),
    ) {
        let device = AuditDevice::new(HostDevice::new());
        let stream = device.create_stream().expect("a stream");
        let builder = Pool::builder(&device).max_cached_bytes(if is_cached { u64::MAX } else { 0 });
        let pool = builder.magazine_bytes(magazine_bytes).build().expect("a pool");
        let new = || (pool.child("child").private(true).build().expect("a pool"), Vec::new(), Twin::default());
        let mut children = [(); 3].map(|()| new());
        let mut own = Vec::new();
        for (at, which, bytes, kind) in steps {
            let class = pool.class_of(bytes).expect("a class");
            match (children.get_mut(at), kind) {
                (Some((child, mine, twin)), 0..5) => {
                    let newest = twin.idle.iter().rposition(|&(_, idle)| idle == class);
                    let expected = newest.map(|at| twin.idle.remove(at));
                    let buffer = child.allocate(bytes, &stream).expect("memory");
                    let place = (buffer.address().expect("the host has"), buffer.capacity());
                    prop_assert!(expected.is_none_or(|expected| expected == place) && buffer.len() == bytes);
                    twin.live.push(place);
                    mine.push(buffer);
                }
                (Some((_, mine, twin)), 5..8) if !mine.is_empty() => {
                    drop(mine.swap_remove(which % mine.len()));
                    let freed = twin.live.swap_remove(which % twin.live.len());
                    twin.idle.push(freed);
                }
                (Some(child), 8) => *child = new(),
                (None, 0..5) => own.push(pool.allocate(bytes, &stream).expect("memory")),
                (None, _) if !own.is_empty() => drop(own.swap_remove(which % own.len())),
                _ => {}
            }
            let sum = |blocks: &[(u64, u64)]| blocks.iter().map(|&(_, class)| class).sum::<u64>();
            let mut all: Vec<_> = own.iter().map(|buffer| buffer.address().expect("the host has")).collect();
            let mut live = own.iter().map(Buffer::capacity).sum::<u64>();
            let (mut kept, mut buffers) = (0, own.len());
            for (child, _, twin) in &children {
                let stats = child.stats();
                prop_assert_eq!((stats.live_bytes, stats.idle_bytes), (sum(&twin.live), sum(&twin.idle)));
                all.extend(twin.live.iter().chain(&twin.idle).map(|&(address, _)| address));
                live += sum(&twin.live);
                kept += sum(&twin.idle);
                buffers += twin.live.len();
            }
            let blocks = all.len();
            all.sort_unstable();
            all.dedup();
            prop_assert_eq!(all.len(), blocks, "memory of one is another's");
            let stats = pool.stats();
            prop_assert_eq!((stats.live_bytes, stats.live_buffers), (live, buffers as u64));
            prop_assert!(is_cached || device.taken() == live + kept);
            // Not what children keep.
            pool.trim().expect("a trim");
            prop_assert_eq!(device.taken(), live + kept);
        }
        drop((children, own));
        pool.trim().expect("a trim");
        prop_assert_eq!((device.taken(), pool.stats().requested_bytes), (0, 0));
    }
}
