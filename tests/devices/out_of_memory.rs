//! At the limit the ladder runs, the error explains, everything is accounted for, no data is touched,
//! work goes on.

use crate::MIB;
use crate::there;
use vrampool::{Error, Pool, Shortage, SizeClasses, Source};

const LIMIT: u64 = 64 * MIB;

#[test]
fn the_limit_gives_idle_memory_back_and_then_an_error_that_explains() {
    there::on_each(|there| {
        let [stream] = there.streams();
        for source in there.sources() {
            let builder = Pool::builder(&there.device).source(source).limit(LIMIT).cached_class(None);
            let pool = builder.size_classes(SizeClasses::Multiple(MIB)).build().expect("a pool");
            let mut precious = pool.allocate(8 * MIB, &stream).expect("memory");
            there.write(&stream, precious.on_mut(&stream).expect("a region"), 9);
            // Idle memory that is in the way of what comes next.
            drop([(); 4].map(|()| pool.allocate(8 * MIB, &stream).expect("memory")));
            assert_eq!(pool.stats().idle_bytes, 32 * MIB, "{source}");
            let large = pool.allocate(40 * MIB, &stream).expect("after idle memory was released");
            assert!(pool.stats().rungs.evict > 0, "{source}");

            let error = pool.allocate(32 * MIB, &stream).expect_err("more than the limit leaves");
            assert!(error.is_out_of_memory(), "{error}");
            let text = error.to_string();
            assert!(text.contains("33554432 bytes were requested"), "{text}");
            assert!(text.contains("drop live buffers"), "{text}");
            let Error::OutOfMemory(error) = error else { panic!("{text}") };
            let is_reported = match error.shortage {
                Shortage::Limit(limit) => limit == LIMIT,
                Shortage::Arena(_) => matches!(source, Source::Arena | Source::Virtual),
                _ => false,
            };
            assert!(is_reported, "{source}: {error:?}");
            let stats = pool.stats();
            assert_eq!((stats.live_bytes, stats.rungs.fail), (48 * MIB, 1), "{source}");

            drop(large);
            let mut next = pool.allocate(32 * MIB, &stream).expect("work goes on");
            there.write(&stream, next.on_mut(&stream).expect("a region"), 10);
            let count = there.count(&stream);
            count.verify(precious.on(&stream).expect("a region"), 9);
            count.verify(next.on(&stream).expect("a region"), 10);
            assert_eq!(count.read(), 0, "{}, {source}", there.name);
            drop((precious, next));
            pool.trim().expect("a trim");
            assert_eq!(pool.stats().held_bytes, 0, "{source}");
        }
    });
}

/// The device itself says that there is no more.
#[test]
fn more_than_the_device_has_is_an_error_and_work_goes_on() {
    there::on_each(|there| {
        let [stream] = there.streams();
        let pool =
            Pool::builder(&there.device).size_classes(SizeClasses::Multiple(MIB)).build().expect("a pool");
        let mut precious = pool.allocate(MIB, &stream).expect("memory");
        there.write(&stream, precious.on_mut(&stream).expect("a region"), 3);
        for bytes in [1 << 46, 1 << 60] {
            let error = pool.allocate(bytes, &stream).expect_err("no device has so much");
            let is_typed = matches!(error, Error::TooLarge { .. } | Error::OutOfMemory(_));
            assert!(is_typed, "{}: {error}", there.name);
        }
        let count = there.count(&stream);
        count.verify(precious.on(&stream).expect("a region"), 3);
        assert_eq!(count.read(), 0, "{}", there.name);
        drop(pool.allocate(4 * MIB, &stream).expect("work goes on"));
    });
}
