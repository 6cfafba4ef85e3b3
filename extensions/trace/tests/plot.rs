//! Drawing the recording of a pool that is live, by a pool with its settings on the host.

use vrampool::{Backend, Pool, SizeClasses, Source, host::HostDevice};
use vrampool_trace::plot::{Picture, Plot};
use vrampool_trace::{Recorder, Trace, TraceFault, fitted};

fn drawn<B: Backend>(trace: &Trace, pool: &Pool<B>, picture: Picture) -> String {
    let mut written = Vec::new();
    Plot::like(trace, pool).expect("it serves it").write(picture, &mut written).expect("memory");
    String::from_utf8(written).expect("text")
}

#[test]
fn a_pool_is_drawn_with_its_settings_and_stays_as_it_was() {
    let device = HostDevice::builder().memory_limit(256 << 20).build();
    let stream = device.create_stream().expect("a stream");
    for &source in Source::ALL {
        if source == Source::Virtual && !vrampool_test_support::has_virtual_memory(&device) {
            continue;
        }
        let recorder = Recorder::new();
        let classes = SizeClasses::Table(fitted::fit(&small().demand(), 4));
        let pool = Pool::builder(&device).source(source).limit(24 << 20).size_classes(classes).name("live");
        let pool = pool.hook(recorder.hook()).build().expect("a pool");
        let child = pool.child("part").limit(8 << 20).build().expect("a child");
        let _live: Vec<_> = (1..9).map(|size| pool.allocate(size << 19, &stream).expect("memory")).collect();
        let before = pool.stats();
        let trace = recorder.trace("so far").expect("a trace");
        for (of, limit) in [(&pool, "24.0"), (&child, "8.0")] {
            if of.limit() < Some(trace.peak_requested()) {
                assert!(Plot::like(&trace, of).expect_err("more than its limit").is_out_of_memory());
                continue;
            }
            let bytes = drawn(&trace, of, Picture::Bytes);
            for text in
                [format!("{source} source, table:"), format!("limit {limit} MiB"), format!("`{}`", of.name())]
            {
                assert!(bytes.contains(&text), "{source}: no {text} in {bytes:.2000}");
            }
            assert!(drawn(&trace, of, Picture::Addresses).contains('z'), "{source}");
            assert!(drawn(&trace, of, Picture::Page).starts_with("<!doctype html>"), "{source}");
        }
        let after = pool.stats();
        assert_eq!(
            (after.live_bytes, after.reserved_bytes, after.served),
            (before.live_bytes, before.reserved_bytes, before.served)
        );
    }
}

#[test]
fn a_snapshot_that_is_none_is_refused() {
    let of = |segments: &str| {
        let json = format!(r#"{{"pool":"","device":"","source":"","limit":0,"segments":[{segments}]}}"#);
        Plot::snapshot(json.as_bytes()).map(drop)
    };
    let most = u64::MAX;
    assert!(of("").is_ok());
    assert!(of(&format!(r#"{{"address":{most},"bytes":0,"tag":"","blocks":[]}}"#)).is_ok());
    let block = |address, bytes| {
        format!(
            r#"{{"address":4096,"bytes":4096,"tag":"","blocks":[
               {{"address":{address},"bytes":{bytes},"requested":1,"stream":0,"state":"live"}}]}}"#
        )
    };
    assert!(of(&block(5000, 3192)).is_ok());
    for segments in
        [block(5000, 3193), block(4095, 1), block(5000, most), "{}".into(), "1".into(), "[".into()]
    {
        let error = of(&segments).expect_err(&segments);
        assert!(matches!(error.fault, TraceFault::Snapshot(_)), "{segments}: {error}");
        assert!(
            error.to_string().starts_with("snapshot: the file is not a snapshot of a pool; write "),
            "{error}"
        );
    }
}

fn small() -> Trace {
    Trace::parse("op,id,size,stream,t_us\na,0,4096,0,0\nf,0,4096,0,9\n".as_bytes()).expect("a trace")
}
