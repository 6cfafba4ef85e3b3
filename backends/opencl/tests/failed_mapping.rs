//! A mapping that is enqueued, and whose work fails: the host does not touch the address. By a library that
//! stands before the real one.
#![cfg(target_os = "linux")]

mod interposed;

use interposed::Interposed;
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{Backend, OpenClDevice, Placement, list};
use vrampool_test_support::require;

/// The event of each mapping has the status of work that NVIDIA stops, or of memory that cannot be had; and no bytes
/// are at the address.
const LIBRARY: &str = r#"
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
#[ignore = "the other test starts it, with a library before the real one"]
fn asked_by_the_other_test() {
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
fn memory_whose_mapping_fails_is_not_touched() {
    if all_devices().is_empty() {
        return;
    }
    let Some(library) = Interposed::build("mapping", LIBRARY) else { return };
    for (variable, expected) in [(None, "lost: false"), (Some("VRAMPOOL_TEST_LOST"), "lost: true")] {
        let said = library.run("asked_by_the_other_test", variable);
        assert!(said.contains(expected), "{variable:?}: {said}");
    }
}
