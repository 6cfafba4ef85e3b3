//! A pool's report names the lines of code that hold memory, a pool that ends before its buffers logs it, and
//! statistics are JSON with the names of their fields.

use log::{LevelFilter, Log, Metadata, Record};
use std::sync::Mutex;
use vrampool::backend::Holder;
use vrampool::hooks::{CallSites, Hook};
use vrampool::host::HostDevice;
use vrampool::{Backend, Buffer, Error, Pool, Rung, SizeClasses};

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

    // Others log nothing: one without live buffers, and one whose holders nobody counts.
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

/// Counts holders by a panic.
#[derive(Debug)]
struct Panics;

impl Hook for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn holders(&self) -> Vec<Holder> {
        panic!("no holders")
    }
}

#[test]
fn a_hook_that_panics_leaves_no_pool_open() -> Result<(), Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let free = device.memory_info()?.free_bytes;
    let pool = Pool::builder(&device).hook(Panics).build()?;
    let outlives = pool.allocate(1000, &stream)?;
    drop(pool.allocate(1 << 20, &stream)?);
    assert!(pool.report().holders.is_empty());
    drop(pool);
    drop(outlives);
    assert_eq!(device.memory_info()?.free_bytes, free);
    Ok(())
}

#[test]
fn statistics_are_json() -> Result<(), Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).limit(1 << 20).build()?;
    drop(pool.allocate(1000, &stream)?);
    assert!(pool.allocate(2 << 20, &stream).is_err());
    let (stats, json) = (pool.stats(), serde_json::to_value(pool.stats()).expect("JSON"));
    assert_eq!(json["misses"], stats.misses);
    assert_eq!(json["limit"], 1 << 20);
    assert_eq!(json["source"], "direct");
    assert_eq!(json["rungs"]["fail"], stats.rung(Rung::Fail));
    assert_eq!(json["buckets"][0]["class"], 1024);
    // Every figure that is printed.
    let fields = format!("{stats:?}").matches(": ").count();
    assert!(json.as_object().is_some_and(|all| all.len() > 30 && all.len() <= fields), "{json}");
    Ok(())
}
