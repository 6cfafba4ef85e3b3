//! Calls that fail for a lack of resources, by a library that stands before the real one: `CL_OUT_OF_RESOURCES` of
//! the call that makes a buffer is a lack of memory where the context still works, a lost device where it does not;
//! where the work of a mapping fails, the host does not touch the address. Each case is a separate process.
#![cfg(target_os = "linux")]

use vrampool_backend::AllocationRequest;
use vrampool_opencl::{Backend, OpenClDevice, Placement, list};
use vrampool_test_support::{CLibraries, passed, require, skipped, test_again};

/// Has no memory, and on demand no working queue either.
const BUFFER: &str = r#"
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

/// The event of each mapping has the status of work that NVIDIA stops, or of memory that cannot be had; and no bytes
/// are at the address.
const MAPPING: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
static void *failed;
void *clEnqueueMapBuffer(void *queue, void *buffer, unsigned blocking, unsigned long flags, unsigned long offset,
                         unsigned long bytes, unsigned count, void *list, void **event, int *code) {
    void *(*real)(void *, void *, unsigned, unsigned long, unsigned long, unsigned long, unsigned, void *, void **, int *) =
        dlsym(RTLD_NEXT, "clEnqueueMapBuffer");
    if (!real(queue, buffer, blocking, flags, offset, bytes, count, list, event, code) || !event)
        return 0;
    failed = *event;
    return (void *)64;
}
int clGetEventInfo(void *event, unsigned what, unsigned long size, void *to, void *written) {
    int (*real)(void *, unsigned, unsigned long, void *, void *) = dlsym(RTLD_NEXT, "clGetEventInfo");
    if (event != failed)
        return real(event, what, size, to, written);
    failed = 0;
    *(int *)to = getenv("VRAMPOOL_TEST_LOST") ? -9999 : -4;
    return 0;
}
"#;

/// Returns every device, or skips the test without one.
fn all_devices() -> Vec<OpenClDevice> {
    let devices = require("opencl", list).unwrap_or_default();
    devices.iter().map(|device| OpenClDevice::open(device.ordinal).expect("a listed device")).collect()
}

#[test]
#[ignore = "another test starts it, with a library before the real one"]
fn a_buffer_is_asked_for() {
    for device in all_devices() {
        let error =
            device.allocate(&AllocationRequest::new(4096, Placement::Device)).expect_err("it answers -5");
        println!("out of memory: {}, lost: {}", error.is_out_of_memory(), error.is_device_lost());
    }
}

#[test]
#[ignore = "another test starts it, with a library before the real one"]
fn a_mapping_is_asked_for() {
    for device in all_devices() {
        let pinned = device.allocate(&AllocationRequest::new(4096, Placement::HostVisible));
        let error = match pinned {
            Err(error) => error,
            Ok(memory) => device.read_mapped(&memory, 0, &mut [0; 64]).expect_err("it is not mapped"),
        };
        println!("lost: {}", error.is_device_lost());
    }
}

#[test]
fn a_lack_of_resources_is_one_of_memory_only_where_the_context_works() {
    assert_answers(
        BUFFER,
        "a_buffer_is_asked_for",
        [
            (None, "out of memory: true, lost: false"),
            (Some("VRAMPOOL_TEST_BROKEN"), "out of memory: false, lost: true"),
        ],
    );
}

#[test]
fn memory_whose_mapping_fails_is_not_touched() {
    let expected = [(None, "lost: false"), (Some("VRAMPOOL_TEST_LOST"), "lost: true")];
    assert_answers(MAPPING, "a_mapping_is_asked_for", expected);
}

/// Runs an ignored test of this program with `source` before the real library, once with each variable.
fn assert_answers(source: &str, test: &str, expected: [(Option<&str>, &str); 2]) {
    if all_devices().is_empty() {
        return;
    }
    let Some(libraries) = CLibraries::new(test) else { return };
    // The linker may not know where the real library is.
    let library = match libraries.compile("libOpenCL.so", source, &["-l:libOpenCL.so.1", "-ldl"]) {
        Ok(library) => library,
        Err(messages) => return skipped(messages),
    };
    for (variable, expected) in expected {
        let set = variable.map(|variable| (variable, "1"));
        let answer = passed(test_again(test).env("OPENCL_DYLIB_PATH", &library).envs(set));
        assert!(answer.contains(expected), "{variable:?}: {answer}");
    }
}
