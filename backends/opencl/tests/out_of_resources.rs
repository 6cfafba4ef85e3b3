//! `CL_OUT_OF_RESOURCES` of the call that makes a buffer: a lack of memory where the context still works, a
//! lost device where it does not. By a library that stands before the real one. Each case is a process of its
//! own.
#![cfg(target_os = "linux")]

use std::process::Command;
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{Backend, OpenClDevice, Placement, list};
use vrampool_test_support::require;

/// Has no memory, and if it is told so no working queue either.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
void *clCreateBuffer(void *context, unsigned long flags, unsigned long size, void *host, int *code) {
    *code = -5;
    return 0;
}
int clEnqueueMarkerWithWaitList(void *queue, unsigned count, void *list, void *event) {
    int (*real)(void *, unsigned, void *, void *) = dlsym(RTLD_NEXT, "clEnqueueMarkerWithWaitList");
    return getenv("VRAMPOOL_TEST_BROKEN") ? -36 : real(queue, count, list, event);
}
"#;

/// Returns every device, or skips the test without one.
fn all_devices() -> Vec<OpenClDevice> {
    let devices = require("opencl", list).unwrap_or_default();
    devices.iter().map(|device| OpenClDevice::open(device.ordinal).expect("a listed device")).collect()
}

#[test]
#[ignore = "the other test starts it, with a library before the real one"]
fn asked_by_the_other_test() {
    for device in all_devices() {
        let error =
            device.allocate(&AllocationRequest::new(4096, Placement::Device)).expect_err("it answers -5");
        println!("out of memory: {}, lost: {}", error.is_out_of_memory(), error.is_device_lost());
    }
}

#[test]
fn a_lack_of_resources_is_one_of_memory_only_where_the_context_works() {
    if all_devices().is_empty() {
        return;
    }
    if Command::new("cc").arg("--version").output().is_err() {
        return eprintln!("skipped: there is no C compiler");
    }
    let folder = std::env::temp_dir().join(format!("vrampool-opencl-resources-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (library, file) = (folder.join("libOpenCL.so"), folder.join("library.c"));
    std::fs::write(&file, LIBRARY).expect("a file");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-Wl,--no-as-needed", "-o"])
        .arg(&library)
        .arg(&file)
        .args(["-l:libOpenCL.so.1", "-ldl"])
        .output()
        .expect("it starts");
    let is_built = built.status.success();
    for (is_broken, expected) in
        [(false, "out of memory: true, lost: false"), (true, "out of memory: false, lost: true")]
    {
        if !is_built {
            // The linker does not know where the library is.
            eprintln!("skipped: {}", String::from_utf8_lossy(&built.stderr));
            break;
        }
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args(["--exact", "asked_by_the_other_test", "--nocapture", "--ignored"]);
        child.env("OPENCL_DYLIB_PATH", &library);
        if is_broken {
            child.env("VRAMPOOL_TEST_BROKEN", "1");
        }
        let output = child.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains(expected), "{is_broken}: {output:?}");
    }
    std::fs::remove_dir_all(&folder).expect("it was there");
}
