//! Pools of a process whose address space is limited: it runs this program again.
#![cfg(target_os = "linux")]

mod calls;

use calls::{allocate, free, ok, pool, stats};
use std::ffi::CString;
use vrampool_c::boundary::Out;
use vrampool_c::*;
use vrampool_test_support::{is_inside, passed, test_behind};

const MIB: u64 = 1 << 20;

/// Whether this is the process with the limit; if not, runs this test in such a process.
fn is_behind(limit: &str, test: &str) -> bool {
    if !is_inside() {
        passed(&mut test_behind(limit, test));
    }
    is_inside()
}

/// Of a small pool over virtual memory, tags included, addresses are a small multiple of its limit, however
/// large the device is.
#[test]
fn a_small_pool_needs_few_addresses() {
    if !is_behind("ulimit -v 2000000", "a_small_pool_needs_few_addresses") {
        return;
    }
    for device in [
        c"device=host;source=virtual;limit=64MiB",
        c"device=host;host_capacity=1TiB;source=virtual;limit=64MiB",
    ] {
        let pool = pool(device);
        let first = allocate(pool, 20 * MIB, std::ptr::null_mut());
        ok(vrampool_tag_begin(pool, c"weights".into()));
        let second = allocate(pool, 20 * MIB, std::ptr::null_mut());
        ok(vrampool_tag_end(pool));
        ok(vrampool_set_limit(pool, 128 * MIB));
        let third = allocate(pool, 70 * MIB, std::ptr::null_mut());
        for address in [first, second, third] {
            free(address);
        }
        ok(vrampool_destroy(pool));
    }
}

/// As an option would, a limit of the environment bounds all tags together.
#[test]
fn the_environment_bounds_all_tags_together() {
    let variables = "export VRAMPOOL_LIMIT_GB=0.03125";
    if !is_behind(variables, "the_environment_bounds_all_tags_together") {
        return;
    }
    let (pool, mut served) = (pool(c"device=host;host_capacity=1GiB;source=virtual"), Vec::new());
    for tag in [c"weights", c"kv_cache", c"x", c"y", c"z"] {
        ok(vrampool_tag_begin(pool, tag.into()));
        let mut address = std::ptr::null_mut();
        let status = vrampool_allocate(pool, 30 * MIB, std::ptr::null_mut(), Out::from(&mut address));
        ok(vrampool_tag_end(pool));
        match status {
            Status::OK => served.push(address),
            status => {
                assert_eq!(status, Status::OUT_OF_MEMORY);
                let text = last_error_text();
                assert!(
                    text.contains("the limit of a pool above it is 32.0 MiB") && !text.contains("device"),
                    "{text}"
                );
            }
        }
    }
    let (mut limit, stats) = (0, stats(pool));
    ok(vrampool_get_limit(pool, Out::from(&mut limit)));
    assert_eq!((served.len(), limit, stats.limit_bytes), (1, 32 * MIB, 32 * MIB));
    assert_eq!((stats.failed_by_limit, stats.failed_by_fragmentation), (4, 0));
    served.into_iter().for_each(free);
    ok(vrampool_destroy(pool));
}

/// A disk that takes no byte, and where the signal that comes with it ends a process that does not check before.
#[test]
fn a_save_on_a_full_disk_leaves_the_previous_file() {
    const TEST: &str = "a_save_on_a_full_disk_leaves_the_previous_file";
    const FOLDER: &str = "VRAMPOOL_TEST_FOLDER";
    const LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../extensions/trace/tests/golden/rmm.csv");
    use vrampool_c::boundary::{Bytes, Text};
    let text = |text: String| CString::new(text).expect("no 0");
    if is_inside() {
        let folder = std::env::var(FOLDER).expect("a folder");
        let [old, new] = ["old", "new"].map(|name| text(format!("{folder}/{name}")));
        let (log, mut trace) = (text(LOG.into()), 0);
        ok(vrampool_trace_load(log.as_c_str().into(), Text::null(), -1, Out::from(&mut trace)));
        for path in [&old, &new] {
            let path = || path.as_c_str().into();
            let convert = vrampool_trace_convert(
                log.as_c_str().into(),
                Text::null(),
                -1,
                path(),
                c"pytorch".into(),
                Out::null(),
                Out::null(),
            );
            for status in [
                vrampool_trace_save(trace, path(), c"csv".into()),
                vrampool_file_write(path(), Bytes::of(b"new"), 3),
                convert,
            ] {
                assert!(![Status::OK, Status::INTERNAL].contains(&status), "{}", last_error_text());
            }
            assert!(last_error_text().contains("ulimit -f"), "{}", last_error_text());
        }
        return ok(vrampool_trace_free(trace));
    }
    let folder = std::env::temp_dir().join(format!("vrampool-full-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("old"), "old").expect("a file");
    let limit = format!("export {FOLDER}='{}'; ulimit -f 0", folder.display());
    passed(&mut test_behind(&limit, TEST));
    let names: Vec<_> = std::fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["old"], "nothing is left behind");
    assert_eq!(std::fs::read(folder.join("old")).expect("a file"), b"old");
    std::fs::remove_dir_all(&folder).expect("a folder");
}
