//! Pools whose misses a growing arena serves.

use super::PAGE;
use vrampool::arena::DeviceArena;
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Backend, BackendError, Error, Placement, Pool, SizeClasses, Source};
use vrampool_test_support::AuditDevice;

type Device = AuditDevice<HostDevice>;

fn device_and_stream() -> (Device, HostStream) {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build());
    let stream = device.create_stream().expect("a stream");
    (device, stream)
}

fn taken(device: &Device) -> u64 {
    let info = device.memory_info().expect("no fault");
    assert_eq!(info.total_bytes - info.free_bytes, device.taken());
    device.taken()
}

#[test]
fn trimming_and_dropping_give_physical_memory_back() {
    let (device, stream) = device_and_stream();
    let builder = Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::Multiple(PAGE));
    let pool = builder.limit(200 * PAGE).magazine_bytes(0).build().expect("a pool");
    assert_eq!(taken(&device), 0, "none before it is needed");
    let mut kept = pool.allocate(3 * PAGE, &stream).expect("memory");
    device.fill(&stream, kept.on_mut(&stream).expect("a region"), 5).expect("queued");
    let mut live: Vec<_> = (1..12).map(|n| pool.allocate(n * PAGE, &stream).expect("memory")).collect();
    assert_eq!(taken(&device), 69 * PAGE);
    live.clear();
    assert_eq!((taken(&device), pool.stats().idle_bytes), (69 * PAGE, 66 * PAGE));
    pool.trim_to(30 * PAGE).expect("a trim");
    let stats = pool.stats();
    assert!(stats.idle_bytes <= 30 * PAGE && taken(&device) <= 33 * PAGE, "{stats:?}");
    assert!(taken(&device) > 3 * PAGE, "what may stay stays");
    assert_eq!(
        (stats.reserved_bytes, pool.arena().map(DeviceArena::reserved_bytes)),
        (taken(&device), Some(taken(&device)))
    );
    pool.trim().expect("a trim");
    assert!(taken(&device) <= 4 * PAGE, "{} bytes for 3 pages in pieces of 2", taken(&device));
    let mut bytes = vec![0; 3 << 12];
    device.download(&stream, kept.on(&stream).expect("a region"), &mut bytes).expect("no fault");
    assert!(bytes.iter().all(|&byte| byte == 5));
    // A dropped pool keeps no free memory, also while a buffer of it is live.
    drop(pool.allocate(50 * PAGE, &stream).expect("memory"));
    assert!(taken(&device) >= 50 * PAGE);
    drop(pool);
    assert!(taken(&device) <= 4 * PAGE);
    drop(kept);
    assert_eq!(taken(&device), 0);
    assert!(device.peak() <= 200 * PAGE);
}

#[test]
fn an_arena_of_the_program_is_left_to_it_when_the_pool_goes() {
    let (device, stream) = device_and_stream();
    let arena = DeviceArena::builder(&device).growing().build().expect("an arena");
    let pool = Pool::builder(&device).arena(&arena).build().expect("a pool");
    assert_eq!(pool.source(), Source::Virtual);
    let kept = arena.allocate(PAGE, &stream).expect("memory");
    drop(pool.allocate(40 * PAGE, &stream).expect("memory"));
    let before = taken(&device);
    drop(pool);
    assert_eq!((taken(&device), arena.used()), (before, kept.capacity()));
}

#[test]
fn decay_takes_two_calls_and_leaves_what_is_idle_in_the_pool() {
    let (device, stream) = device_and_stream();
    let builder = Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::Multiple(PAGE));
    let pool = builder.max_cached_bytes(8 * PAGE).magazine_bytes(0).build().expect("a pool");
    drop(pool.allocate(60 * PAGE, &stream).expect("memory"));
    drop(pool.allocate(8 * PAGE, &stream).expect("memory"));
    assert_eq!((pool.stats().idle_bytes, taken(&device)), (8 * PAGE, 60 * PAGE));
    assert_eq!(pool.decay().expect("no fault"), 0);
    assert_eq!(pool.decay().expect("no fault"), 52 * PAGE);
    assert_eq!((pool.stats().idle_bytes, taken(&device)), (8 * PAGE, 8 * PAGE));
    let direct = Pool::builder(&device).build().expect("a pool");
    assert_eq!(direct.decay().expect("there is nothing"), 0);
}

/// Nothing is mapped for a request that idle memory of other classes has room for, this thread's own and the
/// pool's.
#[test]
fn idle_memory_serves_before_more_is_mapped() {
    for magazine_bytes in [0, 1 << 20] {
        let (device, stream) = device_and_stream();
        let builder =
            Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::Multiple(PAGE));
        let builder = builder.magazine_bytes(magazine_bytes).cached_class(8 * PAGE);
        let pool = builder.build().expect("a pool");
        let live = |pages: u64, count: u64| {
            let buffer = |_| pool.allocate(pages * PAGE, &stream).expect("memory");
            (0..count).map(buffer).collect::<Vec<_>>()
        };
        drop(live(2, 30));
        let (idle, mapped) = (pool.stats().idle_bytes, taken(&device));
        assert!(idle == 60 * PAGE && mapped < 70 * PAGE, "{idle} {mapped}");
        let others = live(5, 11);
        assert_eq!(taken(&device), mapped, "with magazines of {magazine_bytes} bytes");
        assert_eq!(pool.stats().idle_bytes, 0);
        drop(others);
        // For what is larger than all that is idle it stays so.
        let idle = pool.stats().idle_bytes;
        drop(live(200, 1));
        assert!(taken(&device) > mapped && idle == 55 * PAGE && pool.stats().idle_bytes == idle);
    }
}

/// Memory of another kind than the arena's is not served from the arena.
#[test]
fn idle_memory_of_another_kind_stays_when_more_is_mapped() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device).source(Source::Virtual).build().expect("a pool");
    let another = match pool.kind().placement {
        Placement::HostVisible => Placement::Device,
        _ => Placement::HostVisible,
    };
    let other = || pool.allocate_kind(PAGE, another, &stream).expect("memory");
    drop(other());
    let (idle, mapped) = (pool.stats().idle_bytes, pool.stats().reserved_bytes);
    let large = pool.allocate(100 * PAGE, &stream).expect("memory");
    let stats = pool.stats();
    assert!(stats.reserved_bytes > mapped, "{stats:?}");
    assert_eq!((stats.idle_bytes, stats.released.evicted), (idle, 0), "{stats:?}");
    drop(large);
    drop(other());
    assert_eq!(pool.stats().served.by_bucket, 1);
}

/// A thread's idle buffers are released only where releasing all other idle memory is not enough.
#[test]
fn the_pools_idle_memory_is_released_before_a_threads() {
    let (device, stream) = device_and_stream();
    let builder = Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::Multiple(PAGE));
    let pool = builder.magazine_bytes(4 * PAGE).cached_class(68 * PAGE).build().expect("a pool");
    let live = |pages: u64, count: u64| {
        let buffer = |_| pool.allocate(pages * PAGE, &stream).expect("memory");
        (0..count).map(buffer).collect::<Vec<_>>()
    };
    drop((live(1, 4), live(8, 8)));
    let mapped = taken(&device);
    assert_eq!((pool.stats().idle_bytes, mapped), (68 * PAGE, 68 * PAGE));
    // Room for it is only where the eights are, and these are in no magazine.
    let large = live(60, 1);
    let stats = pool.stats();
    assert_eq!(
        (taken(&device), stats.idle_bytes, stats.released.evicted),
        (mapped, 4 * PAGE, 8),
        "{stats:?}"
    );
    assert_eq!(stats.held_bytes, stats.live_bytes + stats.idle_bytes);
    let hits = stats.served.by_bucket;
    drop(live(1, 4));
    assert_eq!(pool.stats().served.by_bucket, hits + 4, "what the thread has is there");
    drop(large);
    // For this all of it is needed.
    let all = live(68, 1);
    assert_eq!((taken(&device), pool.stats().idle_bytes), (mapped, 0));
    drop(all);
}

/// A pass of a program for which nothing has to be mapped releases no idle memory.
#[test]
fn no_idle_memory_is_released_where_there_is_room() {
    for (seed, magazine_bytes) in (0..40).flat_map(|seed| [(seed, 0), (seed, 1 << 20)]) {
        let (device, stream) = device_and_stream();
        let arena = DeviceArena::builder(&device).growing().build().expect("an arena");
        let room = |bytes: u64, count| {
            let block = |_| arena.allocate(bytes, &stream).expect("memory");
            (0..count).map(block).collect::<Vec<_>>()
        };
        // Small ones and large ones have parts of their own.
        drop((room(PAGE / 4, 8000), room(100 * PAGE, 10)));
        let builder = Pool::builder(&device).arena(&arena).size_classes(SizeClasses::Tight);
        let builder = builder.magazine_bytes(magazine_bytes).cached_class(4 * PAGE);
        let pool = builder.build().expect("a pool");
        let (mapped, mut random) = (taken(&device), fastrand::Rng::with_seed(seed));
        let (mut live, mut peak) = (Vec::new(), 0);
        for _ in 0..400 {
            if live.len() > 40 || random.bool() && !live.is_empty() {
                live.swap_remove(random.usize(..live.len()));
            }
            let bytes = match random.bool() {
                true => random.u64(1..=PAGE / 4),
                false => random.u64(PAGE..10 * PAGE),
            };
            live.push(pool.allocate(bytes, &stream).expect("memory"));
            peak = peak.max(live.iter().map(|buffer| buffer.len()).sum());
        }
        drop(live);
        let stats = pool.stats();
        assert!(stats.served.by_bucket > 0 && stats.source.allocations > 0, "{stats:?}");
        assert_eq!((stats.released.evicted, taken(&device)), (0, mapped), "seed {seed}");
        assert_eq!((stats.live_bytes, stats.peak.requested_bytes), (0, peak), "seed {seed}");
        assert_eq!(stats.held_bytes, stats.idle_bytes, "seed {seed}");
    }
}

/// The next trim releases what the device refused to release.
#[test]
fn a_trim_that_the_device_refuses_loses_nothing() {
    let (device, [stream]) = super::host();
    let pool = Pool::builder(&device).source(Source::Virtual).limit(200 * PAGE).build().expect("a pool");
    drop(pool.allocate(8 * PAGE, &stream).expect("memory"));
    device.faults().fail_all(Call::Unmap, BackendError::driver("munmap", 5, "refused"));
    let refused = pool.trim();
    assert!(matches!(refused, Err(Error::Backend(_))), "{refused:?}");
    let stats = pool.stats();
    assert_eq!((stats.idle_bytes, stats.live_bytes), (0, 0), "the arena has it");
    assert!(stats.reserved_bytes >= 8 * PAGE, "{stats:?}");
    device.faults().clear();
    pool.trim().expect("a trim");
    assert_eq!(pool.stats().reserved_bytes, 0);
    assert_eq!(pool.allocate(8 * PAGE, &stream).expect("it serves on").len(), 8 * PAGE);
}
