//! While a stream is captured a plain pool makes no call that this forbids: it serves what takes none,
//! refuses the rest, and loses nothing. (`children` is about memory that is meant for captures,
//! `cuda_capture` about real ones.)

mod random_work;

use vrampool::host::{HostDevice, HostStream};
use vrampool::{Amount, Backend, Buffer, Error, Forbidden, Pool, PoolBuilder, SizeClasses, Source};
use vrampool_test_support::{AuditDevice, close_gate};

type Device = AuditDevice<HostDevice>;

const KIB: u64 = 1024;

struct Scene {
    device: Device,
    pool: Pool<Device>,
    streams: [HostStream; 3],
}

/// Of classes that are multiples of 1 KiB, with at most 64 KiB from the source. Up to 2 KiB are small to a virtual one.
fn scene(source: Source) -> Scene {
    scene_with(source, |builder| builder)
}

fn scene_with(source: Source, with: impl FnOnce(PoolBuilder<Device>) -> PoolBuilder<Device>) -> Scene {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 20).granularity(8 * KIB).build());
    let streams = std::array::from_fn(|_| device.create_stream().expect("a stream"));
    let builder = Pool::builder(&device).source(source).size_classes(SizeClasses::Multiple(KIB));
    Scene { pool: with(builder.limit(64 * KIB)).build().expect("a pool"), device, streams }
}

impl Scene {
    fn buffer(&self, kib: u64, stream: usize) -> Buffer<Device> {
        self.pool.allocate(kib * KIB, &self.streams[stream]).expect("memory")
    }

    /// Returns the counts of the device's calls.
    fn calls(&self) -> [u64; 4] {
        let waits = self.pool.stats().stream_waits;
        [self.device.allocations(), self.device.frees(), self.device.forbidden(), waits]
    }

    /// Makes a request that must be refused, and checks that only counts change. Returns the forbidden operation.
    fn refused(&self, kib: u64, stream: usize) -> Forbidden {
        let (calls, before) = (self.calls(), self.pool.stats());
        let refused = self.pool.allocate(kib * KIB, &self.streams[stream]).expect_err("it is captured");
        let Error::Capture { requested_bytes: requested, class_bytes: class, forbidden, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!((requested, class), (kib * KIB, kib * KIB));
        assert!(refused.to_string().contains("before the capture") && !refused.is_out_of_memory());
        let after = self.pool.stats();
        assert_eq!(self.calls(), calls);
        let bytes = |stats: &vrampool::PoolStats| (stats.live_bytes, stats.idle_bytes, stats.held_bytes);
        assert_eq!(bytes(&after), bytes(&before));
        let counts = |stats: &vrampool::PoolStats| {
            (stats.served.by_bucket, stats.source.allocations, stats.failed.by_backend)
        };
        let (hits, misses, failed) = counts(&before);
        assert_eq!(counts(&after), (hits, misses, failed + 1));
        forbidden
    }
}

#[test]
fn idle_memory_of_the_stream_is_served_and_the_drivers_memory_refused() {
    for &source in Source::ALL {
        let scene = scene(source);
        drop(scene.buffer(2, 0));
        drop(scene.buffer(40, 0));
        scene.device.capture(&[&scene.streams[0]]);
        let calls = scene.calls();
        drop((scene.buffer(2, 0), scene.buffer(40, 0)));
        match source {
            // Nothing but numbers.
            Source::Arena => drop(scene.buffer(3, 0)),
            _ => assert_eq!(scene.refused(3, 0), Forbidden::Allocation, "{source}"),
        }
        assert_eq!(scene.calls(), calls, "{source}");
        // Others go on, and so does the stream afterwards.
        drop(scene.buffer(4, 1));
        scene.device.capture(&[]);
        drop(scene.buffer(5, 0));
    }
}

#[test]
fn a_captured_stream_and_another_one_do_not_wait_for_each_other() {
    for &source in Source::ALL {
        let scene = scene_with(source, |builder| builder.overlap(Amount::Bytes(0)));
        let [captured, other, third] = &scene.streams;
        let busy = [captured, other].map(close_gate);
        drop(scene.buffer(2, 1));
        let mut kept = scene.buffer(3, 1);
        scene.device.capture(&[captured]);
        match source {
            // It keeps nothing so small idle, and the rest of the page was unused.
            Source::Virtual => drop(scene.buffer(2, 0)),
            _ => assert_eq!(scene.refused(2, 0), Forbidden::Wait, "{source}"),
        }
        let calls = scene.calls();
        let is_wait = |error: Error| matches!(error, Error::Capture { forbidden: Forbidden::Wait, .. });
        assert!(is_wait(kept.used_on(captured).expect_err("it is captured")), "{source}");
        assert!(is_wait(kept.on(captured).expect_err("it is captured")), "{source}");
        assert!(is_wait(kept.on_mut(captured).expect_err("it is captured")), "{source}");
        assert_eq!(scene.calls(), calls, "{source}");
        // All streams of a capture can use it. Other streams get other memory.
        scene.device.capture(&[captured, other]);
        kept.on_mut(captured).expect("another stream of the capture");
        scene.device.capture(&[captured]);
        drop(kept);
        let waits = scene.pool.stats().stream_waits;
        let next = scene.pool.allocate(3 * KIB, third).expect("memory");
        assert_eq!(scene.pool.stats().stream_waits, waits, "{source}");
        drop(next);
        scene.device.capture(&[]);
        let both = [(); 2].map(|()| scene.buffer(3, 1));
        assert_eq!(scene.pool.stats().stream_waits, waits + 1, "{source}: now they can; the third is idle");
        drop((both, busy));
    }
}

/// Free memory of a captured stream and another one is for neither of them, until the host has waited for the
/// other one.
#[test]
fn memory_of_concurrent_streams_serves_a_captured_one_after_a_wait() {
    for source in [Source::Arena, Source::Virtual] {
        // Nothing stays idle: it coalesces at once.
        let scene = scene_with(source, |builder| builder.cached_class(0));
        let [captured, _, third] = &scene.streams;
        let rest = scene.buffer(32, 2);
        let blocks = [scene.buffer(16, 0), scene.buffer(16, 1)];
        let busy = close_gate(&scene.streams[1]);
        scene.device.capture(&[captured]);
        drop(blocks);
        assert_eq!(scene.refused(32, 0), Forbidden::Wait, "{source}");
        let error = scene.pool.allocate(32 * KIB, third).expect_err("a captured stream used it");
        assert!(matches!(error, Error::Capture { forbidden: Forbidden::Wait, .. }), "{source}: {error}");
        drop(busy);
        let calls = scene.calls();
        scene.pool.synchronize_freed(captured).expect("no fault");
        let served = scene.pool.allocate(32 * KIB, captured);
        assert!(served.is_ok(), "{source}: {served:?}");
        assert_eq!(scene.calls(), calls, "{source}: without a call for it");
        scene.device.capture(&[]);
        drop((served, rest));
    }
}

/// A request that is refused changes nothing for the code that freed the memory that it would have got.
#[test]
fn a_refused_request_leaves_memory_to_the_streams_that_freed_it() {
    for source in [Source::Arena, Source::Virtual] {
        let scene = scene_with(source, |builder| builder.cached_class(0));
        let [captured, one, two] = &scene.streams;
        let rest = scene.buffer(32, 1);
        let blocks = [scene.buffer(16, 1), scene.buffer(16, 2)];
        let places = blocks.each_ref().map(|block| block.address());
        let busy = [one, two].map(close_gate);
        drop(blocks);
        scene.device.capture(&[captured]);
        for kib in [32, 16, 20] {
            assert_eq!(scene.refused(kib, 0), Forbidden::Wait, "{source}");
        }
        let waits = scene.pool.stats().stream_waits;
        let again = [one, two].map(|stream| scene.pool.allocate(16 * KIB, stream));
        let again = again.map(|block| block.unwrap_or_else(|error| panic!("{source}: {error}")));
        assert_eq!(again.each_ref().map(|block| block.address()), places, "{source}");
        assert_eq!(scene.pool.stats().stream_waits, waits, "{source}: each has its own");
        drop((again, rest, busy));
    }
}

/// The smallest hole was a captured stream's: another one, new memory, or what is kept idle serves.
#[test]
fn a_request_that_is_not_captured_gets_other_memory() {
    for source in [Source::Arena, Source::Virtual] {
        let scene = scene_with(source, |builder| builder.cached_class(0));
        let hole = scene.buffer(8, 0);
        let _walls = [scene.buffer(4, 1), scene.buffer(16, 1)];
        scene.device.capture(&[&scene.streams[0]]);
        drop(hole);
        let waits = scene.pool.stats().stream_waits;
        let mut held = Vec::new();
        for kib in [8, 4, 8, 8, 8] {
            let served = scene.pool.allocate(kib * KIB, &scene.streams[1]);
            assert!(served.is_ok(), "{source}, {kib} KiB: {served:?}");
            held.push(served);
        }
        assert_eq!(scene.pool.stats().stream_waits, waits, "{source}");
        assert_eq!(scene.device.forbidden(), 0, "{source}");
        // And there is nothing else left.
        let error = scene.pool.allocate(8 * KIB, &scene.streams[1]).expect_err("it is the captured stream's");
        assert!(matches!(error, Error::Capture { forbidden: Forbidden::Wait, .. }), "{source}: {error}");
        scene.device.capture(&[]);
        assert!(scene.pool.allocate(8 * KIB, &scene.streams[1]).is_ok(), "{source}");
    }
}

/// All that is free was used by a captured stream and a pool keeps the rest idle: that goes back and serves.
#[test]
fn idle_memory_goes_back_for_a_request_that_would_have_to_wait_for_a_capture() {
    for source in [Source::Arena, Source::Virtual] {
        let scene = scene_with(source, |builder| builder.cached_class(4 * KIB).max_cached_bytes(64 * KIB));
        let theirs = scene.buffer(32, 0);
        let small: Vec<_> = (0..8).map(|_| scene.buffer(4, 1)).collect();
        drop((theirs, small));
        scene.device.capture(&[&scene.streams[0]]);
        let served = scene.pool.allocate(20 * KIB, &scene.streams[1]);
        assert!(served.is_ok(), "{source}: {served:?}");
        assert_eq!(scene.device.forbidden(), 0, "{source}");
    }
}

/// A wait between two captures would merge their graphs.
#[test]
fn streams_of_two_captures_do_not_wait_for_each_other() {
    for &source in Source::ALL {
        let scene = scene(source);
        let [one, two, _] = &scene.streams;
        let mut kept = scene.buffer(3, 0);
        drop(scene.buffer(2, 0));
        scene.device.capture(&[one]);
        scene.device.capture_separately(two);
        let calls = scene.calls();
        let is_wait = |error: Error| matches!(error, Error::Capture { forbidden: Forbidden::Wait, .. });
        assert!(is_wait(kept.used_on(two).expect_err("it is of another capture")), "{source}");
        assert!(is_wait(kept.on_mut(two).expect_err("it is of another capture")), "{source}");
        assert_eq!(scene.calls(), calls, "{source}");
        assert_eq!(scene.refused(2, 1), Forbidden::Wait, "{source}");
        // Of one capture they do.
        scene.device.capture(&[one, two]);
        kept.used_on(two).expect("another stream of the capture");
    }
}

/// A wait for work before the capture is refused: it would be a part of the graph, which may be launched before
/// that work is complete.
#[test]
fn memory_that_was_used_before_a_capture_is_for_no_other_stream_of_it() {
    for &source in Source::ALL {
        let scene = scene(source);
        let _busy = [&scene.streams[0], &scene.streams[1]].map(close_gate);
        drop(scene.buffer(2, 1));
        scene.device.capture(&[&scene.streams[0], &scene.streams[1]]);
        assert_eq!(scene.refused(2, 0), Forbidden::Wait, "{source}");
        // A stream of the capture reads a block that other streams of the capture use in turn.
        let mut block = scene.buffer(2, 1);
        for _ in 0..3 {
            block.used_on(&scene.streams[0]).expect("another stream of the capture");
            drop(block);
            block = scene.buffer(2, 1);
        }
        // A use outside of it does not.
        scene.device.capture(&[]);
        block.record_stream(&scene.streams[0]).expect("no fault");
        drop(block);
        scene.device.capture(&[&scene.streams[0], &scene.streams[1]]);
        assert_eq!(scene.refused(2, 1), Forbidden::Wait, "{source}");
    }
}

/// An order within a graph is none of the streams' own: they wait once more when nothing is captured.
#[test]
fn work_ordered_in_a_capture_is_ordered_again_after_it() {
    for &source in Source::ALL {
        let scene = scene(source);
        let [one, two, third] = &scene.streams;
        let mut buffer = scene.buffer(2, 0);
        let waits = || scene.pool.stats().stream_waits;
        scene.device.capture(&[one, two]);
        buffer.used_on(two).expect("a stream of the capture");
        scene.device.capture(&[]);
        let before = waits();
        buffer.used_on(two).expect("no fault");
        assert_eq!(waits(), before + 1, "{source}: for the writer");
        buffer.used_on(two).expect("no fault");
        assert_eq!(waits(), before + 1, "{source}: once");
        scene.device.capture(&[one, two]);
        buffer.on_mut(two).map(drop).expect("a stream of the capture");
        scene.device.capture(&[]);
        let before = waits();
        buffer.on_mut(third).map(drop).expect("no fault");
        assert_eq!(waits(), before + 2, "{source}: for both");
    }
}

#[test]
fn nothing_is_released_or_moved_for_a_captured_stream() {
    let scene = scene(Source::Arena);
    // All of the arena: holes between what is live, and idle memory of other classes.
    let live: Vec<_> = (0..16).map(|_| scene.buffer(4, 0)).collect();
    let _live: Vec<_> = live.into_iter().skip(1).step_by(2).collect();
    scene.device.capture(&[&scene.streams[0]]);
    assert_eq!(scene.refused(8, 0), Forbidden::Release, "the limit");
    let (calls, stats) = (scene.calls(), scene.pool.stats());
    let refused = scene.pool.arena().expect("it has one").compact(u64::MAX, &scene.streams[0], |_| {});
    assert!(matches!(refused, Err(Error::Capture { forbidden: Forbidden::Release, .. })), "{refused:?}");
    assert_eq!((scene.calls(), scene.pool.stats().held_bytes), (calls, stats.held_bytes));
    scene.pool.trim().expect("a trim");
    assert_eq!(scene.refused(8, 0), Forbidden::Release, "the arena's holes");
    // And for another stream a captured one's blocks stay where they are.
    let error = scene.pool.allocate(8 * KIB, &scene.streams[1]).expect_err("they are in the way");
    assert!(error.is_out_of_memory(), "{error}");
    assert_eq!(scene.device.forbidden(), 0);
    scene.device.capture(&[]);
    drop(scene.buffer(8, 0));
}

/// The driver's memory goes back behind its readers, but for one that is captured.
#[test]
fn memory_that_a_captured_stream_read_is_released_without_a_call_for_it() {
    let scene = scene(Source::Driver);
    let buffer = scene.buffer(2, 1);
    buffer.used_on(&scene.streams[0]).expect("no fault");
    scene.device.capture(&[&scene.streams[0]]);
    drop(buffer);
    scene.pool.trim().expect("a trim");
    assert_eq!((scene.device.taken(), scene.device.forbidden()), (0, 0));
}
