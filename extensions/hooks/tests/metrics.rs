//! A pool's metrics have the lines of code that hold its memory.

use vrampool::host::HostDevice;
use vrampool::telemetry::Owner;
use vrampool::{Backend, Pool};
use vrampool_hooks::CallSites;
use vrampool_test_support as _;

#[test]
fn the_lines_that_hold_memory_are_metrics() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).hook(CallSites::new()).build().expect("a pool");
    let figures = || format!("{:?}", pool.figures());
    assert!(!figures().contains("vrampool_site_live_bytes"), "no line holds memory");
    let line = line!() + 1;
    let live = pool.allocate(1000, &stream).expect("memory");
    let text = figures();
    assert!(
        text.contains("vrampool_site_live_bytes") && text.contains(&format!("metrics.rs:{line}:")),
        "{text}"
    );
    drop(live);
    assert!(!figures().contains("vrampool_site_live_bytes"), "no line holds memory");
}
