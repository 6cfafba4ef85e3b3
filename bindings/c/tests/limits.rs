//! Pools of a process whose address space is limited: it runs this program again.
#![cfg(target_os = "linux")]

use std::ffi::{CString, c_void};
use std::process::Command;
use vrampool_c::boundary::Out;
use vrampool_c::{
    Status, last_error_text, vrampool_allocate, vrampool_create, vrampool_destroy, vrampool_free,
    vrampool_set_limit, vrampool_tag_begin, vrampool_tag_end,
};

const MIB: u64 = 1 << 20;
/// Whether this is the process with the limit.
const INSIDE: &str = "VRAMPOOL_TEST_INSIDE";

fn ok(status: Status) {
    assert_eq!(status, Status::OK, "{}", last_error_text());
}

fn allocate(pool: u64, bytes: u64) -> *mut c_void {
    let mut address = std::ptr::null_mut();
    ok(vrampool_allocate(pool, bytes, std::ptr::null_mut(), Out::from(&mut address)));
    address
}

/// Of a small pool over virtual memory, tags included, addresses are a small multiple of its limit, however
/// large the device is.
#[test]
fn a_small_pool_needs_few_addresses() {
    if std::env::var_os(INSIDE).is_none() {
        let program = std::env::current_exe().expect("its own path");
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 2000000; exec \"$@\"", "sh"]).arg(program).env(INSIDE, "1");
        let output =
            command.args(["--exact", "a_small_pool_needs_few_addresses"]).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
        return assert!(text.contains("1 passed"), "{text}");
    }
    for device in ["device=host", "device=host;host_capacity=1TiB"] {
        let (mut pool, tag) = (0, CString::new("weights").expect("no 0"));
        let options = CString::new(format!("{device};source=virtual;limit=64MiB")).expect("no 0");
        ok(vrampool_create(options.as_c_str().into(), Out::from(&mut pool)));
        let first = allocate(pool, 20 * MIB);
        ok(vrampool_tag_begin(pool, tag.as_c_str().into()));
        let second = allocate(pool, 20 * MIB);
        ok(vrampool_tag_end(pool));
        ok(vrampool_set_limit(pool, 128 * MIB));
        let third = allocate(pool, 70 * MIB);
        for address in [first, second, third] {
            ok(vrampool_free(pool, address, std::ptr::null_mut()));
        }
        ok(vrampool_destroy(pool));
    }
}
