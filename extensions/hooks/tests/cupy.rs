//! CuPy's tests of its memory hooks, by their names, on the host device.
//!
//! The tests are written anew; names and sizes are from `test_memory_hook.py` and `memory_hooks_tests` in
//! `tests/cupy_tests/cuda_tests` of <https://github.com/cupy/cupy> (MIT, © 2015 Preferred Infrastructure, Inc.,
//! © 2015 Preferred Networks, Inc.): test_hook, test_print, test_print_report, test_print_report_max_depth.

use std::io::{Result, Write};
use std::sync::{Arc, Mutex};
use vrampool::hooks::{Hook, HookEvent, Outcome};
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Buffer, Pool, SizeClasses};
use vrampool_hooks::{CallSites, DebugPrint, Scoped};
use vrampool_test_support as _;

/// What CuPy rounds to.
const UNIT: u64 = 512;

fn device() -> (HostDevice, HostStream) {
    let device = HostDevice::builder().memory_limit(1 << 30).granularity(4096).build();
    let stream = device.create_stream().expect("a stream");
    (device, stream)
}

/// Where a buffer is, as work on `stream` sees it.
fn address(buffer: &Buffer<HostDevice>, stream: &HostStream) -> u64 {
    buffer.on(stream).expect("a region").address().expect("the device has addresses")
}

fn pool(device: &HostDevice) -> Pool<HostDevice> {
    let builder = Pool::builder(device).name("test").size_classes(SizeClasses::Exact(UNIT));
    builder.hook(Scoped).build().expect("a pool")
}

/// What each call was given: its name, the request's id, the bytes rounded, the address, the outcome.
type Call = (&'static str, u64, u64, Option<u64>, Outcome);

/// The last three of these.
type Figures = (u64, Option<u64>, Outcome);

#[derive(Debug, Default)]
struct SimpleMemoryHook {
    history: Mutex<Vec<Call>>,
}

impl SimpleMemoryHook {
    fn note(&self, call: &'static str, event: &HookEvent<'_>) {
        assert_eq!((event.pool, event.device.backend, event.requested_bytes), ("test", "host", 1));
        let call = (call, event.id, event.rounded_bytes, event.address, event.outcome);
        self.history.lock().expect("no panic").push(call);
    }

    fn of(&self, wanted: &str) -> (Vec<u64>, Vec<Figures>) {
        let history = self.history.lock().expect("no panic");
        let calls = history.iter().filter(|(call, ..)| *call == wanted);
        calls.map(|&(_, id, rounded, address, outcome)| (id, (rounded, address, outcome))).unzip()
    }
}

impl Hook for SimpleMemoryHook {
    fn name(&self) -> &str {
        "SimpleMemoryHook"
    }

    fn before_request(&self, event: &HookEvent<'_>) {
        self.note("malloc_preprocess", event);
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        self.note("malloc_postprocess", event);
    }

    fn before_allocation(&self, event: &HookEvent<'_>) {
        self.note("alloc_preprocess", event);
    }

    fn after_allocation(&self, event: &HookEvent<'_>) {
        self.note("alloc_postprocess", event);
    }

    fn before_free(&self, event: &HookEvent<'_>) {
        self.note("free_preprocess", event);
    }

    fn after_free(&self, event: &HookEvent<'_>) {
        self.note("free_postprocess", event);
    }
}

#[test]
fn test_hook() {
    let (device, stream) = device();
    let pool = pool(&device);
    let hook = Arc::new(SimpleMemoryHook::default());
    let malloc = || {
        let buffer = pool.allocate(1, &stream).expect("memory");
        address(&buffer, &stream)
    };
    let scope = Scoped::enter(Arc::clone(&hook)).expect("a scope");
    let pointers = [malloc(), malloc()].map(Some);
    drop(scope);
    malloc();
    let (ids, _) = hook.of("malloc_preprocess");
    assert!(ids.len() == 2 && ids[0] != ids[1]);
    let before = (UNIT, None, Outcome::Pending);
    let [first, second] = pointers.map(|pointer| (UNIT, pointer, Outcome::Done));
    let [freeing, then] = pointers.map(|pointer| (UNIT, pointer, Outcome::Pending));
    assert_eq!(hook.of("alloc_preprocess"), (vec![ids[0]], vec![before]));
    assert_eq!(hook.of("alloc_postprocess"), (vec![ids[0]], vec![first]));
    assert_eq!(hook.of("malloc_preprocess"), (ids.clone(), vec![before, before]));
    assert_eq!(hook.of("malloc_postprocess"), (ids.clone(), vec![first, second]));
    assert_eq!(hook.of("free_preprocess"), (ids.clone(), vec![freeing, then]));
    assert_eq!(hook.of("free_postprocess"), (ids, vec![first, second]));
}

/// A writer whose text can be looked at.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn test_print() {
    let (device, stream) = device();
    let pool = pool(&device);
    let text = Text::default();
    let scope = Scoped::enter(DebugPrint::new(text.clone())).expect("a scope");
    let mut pointers = Vec::new();
    for _ in 0..2 {
        let line = line!() + 1;
        let buffer = pool.allocate(1, &stream).expect("memory");
        pointers.push((address(&buffer, &stream), line));
    }
    drop(scope);
    let text = String::from_utf8(text.0.lock().expect("no panic").clone()).expect("text");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let expected =
        [("alloc", 0), ("malloc", 0), ("free", 0), ("malloc", 1), ("free", 1)].map(|(hook, round)| {
            let (pointer, line) = pointers[round];
            let id =
                &lines.iter().filter(|line| line["hook"] == "malloc").nth(round).expect("a line")["pmem_id"];
            let mut expected = serde_json::json!({
                "hook": hook, "device_id": device.id().to_string(), "mem_size": UNIT, "mem_ptr": pointer,
                "pmem_id": id, "pool": "test", "outcome": "done",
                "site": format!("{}:{line}:27", file!()),
            });
            if hook == "malloc" {
                expected["size"] = 1.into();
            }
            expected
        });
    assert_eq!(lines, expected);
    assert_ne!(lines[1]["pmem_id"], lines[3]["pmem_id"]);
}

#[test]
fn test_print_escapes() {
    let (device, stream) = device();
    let text = Text::default();
    let name = "a \"name\" \\ of\ntwo\tlines ü";
    let pool = Pool::builder(&device).name(name).limit(0).hook(DebugPrint::new(text.clone())).build();
    assert!(pool.expect("a pool").allocate(1, &stream).is_err());
    let text = String::from_utf8(text.0.lock().expect("no panic").clone()).expect("text");
    let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&line["pool"], &line["outcome"], &line["mem_ptr"]),
        (&name.into(), &"failed".into(), &0.into())
    );
}

#[test]
fn test_print_report() {
    let (device, stream) = device();
    let pool = pool(&device);
    let hook = Arc::new(CallSites::new());
    drop(pool.allocate(1000, &stream).expect("memory"));
    let scope = Scoped::enter(Arc::clone(&hook)).expect("a scope");
    let line = line!();
    let first = pool.allocate(1000, &stream).expect("memory");
    let second = pool.allocate(2000, &stream).expect("memory");
    drop(scope);
    drop((first, second));
    let actual = hook.report().to_string();
    let [heads, all, larger, smaller] = *actual.lines().collect::<Vec<_>>() else { panic!("{actual}") };
    assert!(heads.trim_start().starts_with("used") && heads.ends_with("  site"), "{actual}");
    let row = |text: &str| {
        text.split("  ")
            .map(|part| part.trim().to_owned())
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
    };
    assert_eq!(row(all)[..2], ["3.0 KiB", "2.0 KiB"], "{actual}");
    assert_eq!((&row(larger)[0], &row(larger)[1]), (&"2.0 KiB".into(), &"2.0 KiB".into()), "{actual}");
    assert_eq!((&row(smaller)[0], &row(smaller)[1]), (&"1.0 KiB".into(), &"0 B".into()), "{actual}");
    assert!(larger.ends_with(&format!("{}:{}:23", file!(), line + 2)), "{actual}");
    assert!(smaller.ends_with(&format!("{}:{}:22", file!(), line + 1)), "{actual}");
}

/// Here the depth is one line, or, by the total, none.
#[test]
fn test_print_report_max_depth() {
    let (device, stream) = device();
    let pool = pool(&device);
    let hook = Arc::new(CallSites::new());
    let scope = Scoped::enter(Arc::clone(&hook)).expect("a scope");
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(pool.allocate(1000, &stream).expect("memory"));
    }
    kept.pop();
    drop(scope);
    let report = hook.report();
    let [row] = report.rows() else { panic!("{report}") };
    assert_eq!((row.requests, row.failures, row.requested_bytes, row.used_bytes), (3, 0, 3000, 6 * UNIT));
    assert_eq!((row.driver_allocations, row.acquired_bytes), (3, 6 * UNIT));
    assert_eq!((row.live_bytes, row.peak_bytes), (4 * UNIT, 6 * UNIT));
    let total = report.total();
    assert_eq!((total.site, total.requests, total.peak_bytes), (None, 3, 6 * UNIT));
    // What is out is forgotten, too, and does not count down what comes later.
    hook.clear();
    assert_eq!(hook.report().rows(), []);
    let _scope = Scoped::enter(Arc::clone(&hook)).expect("a scope");
    drop(kept);
    assert_eq!(hook.report().rows(), []);
}
