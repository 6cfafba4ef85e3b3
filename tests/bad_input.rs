//! Bad input gets a typed error that names field and remedy, and nothing is lost.

use vrampool::arena::DeviceArena;
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, BackendError, Error, Pool, SizeClasses, SizeTable, Source};
use vrampool_test_support::AuditDevice;

const KIB: u64 = 1024;

fn scene() -> (AuditDevice<HostDevice>, <HostDevice as Backend>::Stream) {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).build());
    let stream = device.create_stream().expect("a stream");
    (device, stream)
}

#[test]
fn sizes_from_nothing_to_everything() {
    for classes in [
        SizeClasses::Fixed,
        SizeClasses::PowerOfTwo,
        SizeClasses::GEOMETRIC,
        SizeClasses::Multiple(1 << 20),
        SizeClasses::EXACT,
        SizeClasses::Exact(1),
        SizeClasses::Table(SizeTable::new([1, 4096])),
        SizeClasses::Table(SizeTable::new([])),
    ] {
        let (device, stream) = scene();
        let pool = Pool::builder(&device).size_classes(classes.clone()).build().expect("a pool");
        let mut empty = pool.allocate(0, &stream).expect("0 bytes are allowed");
        assert!(empty.is_empty() && empty.capacity() >= 1);
        empty.write(&[], &stream).expect("nothing to write");
        assert!(matches!(
            empty.write(&[1], &stream).as_ref().err().and_then(Error::backend),
            Some(BackendError::InvalidArgument { .. })
        ));
        assert_eq!(pool.allocate(1, &stream).expect("memory").len(), 1);
        for bytes in [usize::MAX as u64, u64::MAX - 1, (1 << 63) + 1, i64::MAX as u64, 1 << 40] {
            let error = pool.allocate(bytes, &stream).expect_err("too much");
            assert!(matches!(error, Error::TooLarge { .. } | Error::OutOfMemory(_)), "{error:?}");
            assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        }
        drop(empty);
        let stats = pool.stats();
        assert_eq!((stats.live_bytes, stats.held_bytes), (0, stats.idle_bytes));
        assert_eq!(stats.failed.invalid + stats.failed.by_device, 5, "{stats:?}");
        // Sums of sizes that overflow do not wrap round a limit either.
        let limited =
            Pool::builder(&device).size_classes(classes.clone()).limit(1 << 20).build().expect("a pool");
        let _live = limited.allocate(1, &stream).expect("memory");
        assert!(limited.allocate(1 << 50, &stream).expect_err("too much").is_out_of_memory());
    }
}

#[test]
fn settings_that_cannot_be_name_their_field() {
    let (device, _) = scene();
    for classes in [
        SizeClasses::Multiple(0),
        SizeClasses::Exact(0),
        SizeClasses::Geometric { per_doubling: 0, from: 1 },
        SizeClasses::Geometric { per_doubling: 3, from: 1 << 20 },
        SizeClasses::Geometric { per_doubling: 8, from: 0 },
    ] {
        let error = Pool::builder(&device).size_classes(classes.clone()).build().expect_err("no classes");
        assert!(
            matches!(&error, Error::Configuration(setting) if setting.field == "size_classes"),
            "{error:?}"
        );
    }
    let error =
        Pool::builder(&device).source(Source::Arena).limit(0).build().expect_err("an arena of nothing");
    assert!(matches!(&error, Error::Configuration(setting) if setting.field == "limit"), "{error:?}");
    let error = "tape".parse::<Source>().expect_err("no such source");
    assert!(error.to_string().contains("known are direct, arena"), "{error}");
}

#[test]
fn a_lost_device_is_an_error_everywhere_and_memory_still_comes_back() {
    let (device, stream) = scene();
    let other = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).build().expect("a pool");
    drop(pool.allocate(KIB, &stream).expect("memory"));
    let mut live = pool.allocate(128 * KIB, &stream).expect("memory");
    device.inner().faults().lose_device();
    // Still cached, still on the same stream: nothing need be asked.
    drop(pool.allocate(KIB, &stream).expect("idle memory"));
    let lost = |error: Error| assert!(error.is_device_lost() && !error.is_out_of_memory(), "{error:?}");
    lost(pool.allocate(KIB, &other).expect_err("a wait must be queued"));
    lost(pool.allocate(1 << 20, &stream).expect_err("the device must be asked"));
    lost(pool.allocate_zeroed(KIB, &stream).expect_err("a fill must be queued"));
    lost(live.write(&[1], &stream).expect_err("an upload must be queued"));
    lost(live.read(&mut [0], &stream).expect_err("a download must be queued"));
    lost(live.on(&other).expect_err("a wait must be queued"));
    drop(live);
    let stats = pool.stats();
    assert_eq!((stats.live_bytes, stats.held_bytes), (0, stats.idle_bytes));
    pool.trim().expect("a trim");
    assert_eq!(device.taken(), 0);
}

/// The same rule through a pool: what the kernel was to write nothing reads, and what it used is reused.
#[test]
fn writes_of_a_failed_stream_are_errors_and_its_memory_is_reused() {
    for source in [Source::Direct, Source::Arena] {
        let (device, stream) = scene();
        let pool = Pool::builder(&device).source(source).limit(64 * KIB).build().expect("a pool");
        let other = device.create_stream().expect("a stream");
        let mut buffer = pool.allocate(KIB, &stream).expect("memory");
        buffer.write(&[1; 16], &stream).expect("queued");
        stream.launch::<u8, 0, 0>([], [], |[], []| panic!("a bug in a kernel")).expect("queued");
        assert!(device.synchronize(&stream).expect_err("it failed").is_stream_failed());
        let failures = [
            buffer.read(&mut [0], &other).expect_err("there is nothing to read"),
            buffer.write(&[2], &stream).expect_err("the stream failed"),
            buffer.write(&[2], &other).expect_err("there is nothing to change"),
        ];
        for error in failures {
            assert!(error.is_stream_failed() && !error.is_device_lost(), "{source}: {error}");
            assert!(error.to_string().contains("a bug in a kernel"), "{source}: {error}");
        }
        drop(buffer);
        // As many as there are, so that one of them is the block that the failed stream had.
        let mut all: Vec<_> =
            (0..64).map(|_| pool.allocate(KIB, &other).expect("memory is reused")).collect();
        for buffer in &mut all {
            buffer.write(&[3; 16], &other).expect("queued");
            let mut bytes = [0; 16];
            buffer.read(&mut bytes, &other).expect("the other stream works");
            assert_eq!(bytes, [3; 16]);
        }
    }
}

#[test]
fn blocks_of_a_failed_stream_do_not_keep_an_arena_from_compacting() {
    let (device, stream) = scene();
    let arena = DeviceArena::builder(&device).limit(64 * KIB).build().expect("an arena");
    let other = device.create_stream().expect("a stream");
    let hole = arena.allocate(KIB, &stream).expect("memory");
    let block = arena.allocate(KIB, &stream).expect("memory");
    drop(hole);
    stream.launch::<u8, 0, 0>([], [], |[], []| panic!("a bug in a kernel")).expect("queued");
    assert!(device.synchronize(&stream).expect_err("it failed").is_stream_failed());
    let report = arena.compact(None, &other, |_| {}).expect("the other stream works");
    assert_eq!((report.moved_blocks, report.moved_bytes), (1, KIB));
    drop(block);
}

#[test]
fn regions_that_leave_a_buffer_are_refused() {
    let (device, stream) = scene();
    let pool = Pool::builder(&device).build().expect("a pool");
    let buffer = pool.allocate(100, &stream).expect("memory");
    let region = buffer.on(&stream).expect("a region");
    assert_eq!(region.len(), 100, "what rounding added is not the borrower's to see");
    assert!(region.slice(..101).is_err() && region.slice(101..).is_err() && region.slice(5..=100).is_err());
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    let reversed = region.slice(5..4);
    assert!(reversed.is_err() && region.slice(0..=u64::MAX).is_err());
    assert_eq!(region.slice(5..=99).expect("inside").len(), 95);
    assert!(buffer.read(&mut [0; 101], &stream).is_err());
    assert_eq!(device.inner().faults().calls(Call::Download), 0);
}

/// An arena and another source than its own contradict each other: neither is dropped silently.
#[test]
fn an_arena_beside_another_source_is_refused() {
    let device = HostDevice::new();
    let fixed = DeviceArena::builder(&device).limit(1 << 20).build().expect("an arena");
    let with = |source| Pool::builder(&device).arena(&fixed).source(source).build();
    for source in [Source::Direct, Source::Virtual, Source::Driver] {
        let error = with(source).expect_err("a contradiction");
        assert!(matches!(&error, Error::Configuration(setting) if setting.field == "source"), "{error}");
        let reversed = Pool::builder(&device).source(source).arena(&fixed).build();
        assert!(
            matches!(&reversed, Err(Error::Configuration(setting)) if setting.field == "source"),
            "{source}"
        );
    }
    assert_eq!(with(Source::Arena).expect("its own").source(), Source::Arena);
    let other = DeviceArena::builder(&device).limit(1 << 20).build().expect("an arena");
    let pool = Pool::builder(&device).arena(&other).build().expect("the arena's");
    assert_eq!(pool.source(), Source::Arena);
}

/// Two pools of one arena would evict and count for each other.
#[test]
fn an_arena_serves_one_pool() {
    let device = HostDevice::new();
    let arena = DeviceArena::builder(&device).limit(1 << 20).build().expect("an arena");
    let first = Pool::builder(&device).arena(&arena).build().expect("the first");
    let refused = || {
        let error = Pool::builder(&device).arena(&arena).build().expect_err("it serves another pool");
        assert!(matches!(&error, Error::Configuration(setting) if setting.field == "arena"), "{error:?}");
        assert!(error.to_string().contains("serves only one"), "{error}");
    };
    refused();
    let stream = device.create_stream().expect("a stream");
    drop(first.allocate(KIB, &stream).expect("the first one works"));
    drop(first);
    refused();
}
