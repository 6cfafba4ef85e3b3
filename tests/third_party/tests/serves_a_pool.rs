//! A backend that vrampool has never heard of conforms, and serves pools from both sources that it can.

use third_party_backend::VecDevice;
use vrampool::arena::DeviceArena;
use vrampool::{Backend, BackendError, Error, Pool, Source, backend::conformance};

#[test]
fn it_conforms() {
    let report = conformance::check(&VecDevice::default()).expect("conforms");
    assert!(report.passed.len() >= 13, "{report}");
    println!("{report}");
}

#[test]
fn it_serves_a_pool() {
    let device = VecDevice::default();
    let (one, two) = (device.create_stream().expect("a stream"), device.create_stream().expect("a stream"));
    for source in [Source::Direct, Source::Arena] {
        let pool = Pool::builder(&device).source(source).limit(1 << 20).build().expect("a pool");
        for step in 0..100u8 {
            let mut buffer = pool.allocate(40_000, &one).expect("memory");
            buffer.write(&[step; 40_000], &one).expect("a copy");
            let mut bytes = [0; 40_000];
            buffer.read(&mut bytes, &two).expect("a copy");
            assert_eq!(bytes, [step; 40_000], "{source}");
        }
        let stats = pool.stats();
        assert_eq!((stats.served.by_bucket, stats.source.allocations), (99, 1), "{source}");

        let error = pool.allocate(2 << 20, &one).expect_err("more than the limit");
        assert!(error.is_out_of_memory(), "{source}: {error}");
        drop(pool.allocate(40_000, &two).expect("work goes on"));
        pool.trim().expect("a trim");
        assert_eq!(pool.stats().held_bytes, 0, "{source}");
    }
    let refused = Pool::builder(&device).source(Source::Virtual).build();
    assert!(
        matches!(&refused, Err(Error::Configuration(setting)) if setting.field == "source"),
        "it has no virtual memory"
    );
    let refused = DeviceArena::builder(&device).growing().build();
    assert!(
        matches!(refused.as_ref().err().and_then(Error::backend), Some(BackendError::Unsupported { .. })),
        "{refused:?}"
    );
    let refused = Pool::builder(&device).source(Source::Driver).build();
    assert!(
        matches!(&refused, Err(Error::Configuration(setting)) if setting.field == "source"),
        "it has no driver's pool"
    );
}
