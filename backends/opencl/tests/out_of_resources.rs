//! `CL_OUT_OF_RESOURCES` of the call that makes a buffer: a lack of memory where the context still works, a
//! lost device where it does not. By a library that stands before the real one. Each case is a process of its
//! own.
#![cfg(target_os = "linux")]

mod interposed;

use interposed::Interposed;
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{Backend, OpenClDevice, Placement, list};
use vrampool_test_support::require;

/// Has no memory, and on demand no working queue either.
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
    let Some(library) = Interposed::build("resources", LIBRARY) else { return };
    for (variable, expected) in [
        (None, "out of memory: true, lost: false"),
        (Some("VRAMPOOL_TEST_BROKEN"), "out of memory: false, lost: true"),
    ] {
        let said = library.run("asked_by_the_other_test", variable);
        assert!(said.contains(expected), "{variable:?}: {said}");
    }
}
