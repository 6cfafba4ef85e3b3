//! A pool's report names the source lines that hold memory, a pool that ends before its buffers logs it, and counts of
//! source lines are text.

use log::{LevelFilter, Log, Metadata, Record};
use std::sync::Mutex;
use vrampool::host::HostDevice;
use vrampool::{Backend, Buffer, Pool, SizeClasses};
use vrampool_hooks::CallSites;
use vrampool_test_support as _;

static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        LOGGED.lock().expect("no panic").push(record.args().to_string());
    }

    fn flush(&self) {}
}

#[test]
fn leaks_are_reported_by_the_line_that_allocated_them() {
    log::set_logger(&Logger).expect("the only one");
    log::set_max_level(LevelFilter::Warn);
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let builder = || Pool::builder(&device).size_classes(SizeClasses::PowerOfTwo);
    let pool = builder().name("leaky").hook(CallSites::new()).build().expect("a pool");
    assert!(pool.report().holders.is_empty());
    let large = (line!(), pool.upload(&[1u64; 1000], &stream).expect("memory"));
    let small: Vec<_> = (0..3).map(|_| pool.allocate(100, &stream).expect("memory")).collect();
    drop(pool.allocate(5000, &stream).expect("memory"));
    let report = pool.report();
    let held: Vec<_> = report.holders.iter().map(|holder| (holder.buffers, holder.bytes)).collect();
    assert_eq!(
        held,
        [(1, 8192), (3, 3 * small[0].capacity())],
        "most bytes first, and nothing that came back"
    );
    assert_eq!((report.holders[0].site.file(), report.holders[0].site.line()), (file!(), large.0));
    let text = report.to_string();
    assert!(text.starts_with("pool leaky: 4 live buffers") && text.contains("tests/report.rs:"), "{text}");
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["holders"][0]["bytes"], 8192);
    assert!(json["holders"][0]["site"].as_str().is_some_and(|site| site.starts_with(file!())));

    // Others log nothing: one without live buffers, and one whose holders nothing counts.
    drop(builder().hook(CallSites::new()).build().expect("a pool"));
    let silent = builder().build().expect("a pool");
    let outlives = silent.allocate(1, &stream).expect("memory");
    drop(silent);
    assert_eq!(LOGGED.lock().expect("no panic").len(), 0);
    drop(pool);
    let logged = LOGGED.lock().expect("no panic").clone();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("pool leaky: 4 live buffers") && logged[0].contains(file!()), "{logged:?}");
    drop::<(Buffer<_>, _, _)>((outlives, large, small));
}

#[test]
fn a_report_is_a_table() {
    assert!(CallSites::new().report().to_string().contains("all"));
}

#[cfg(feature = "serde")]
#[test]
fn counts_are_records() {
    let sites = CallSites::new();
    let total = serde_json::to_value(sites.report().total()).expect("JSON");
    assert_eq!((&total["site"], &total["requests"]), (&serde_json::Value::Null, &0.into()));
}
