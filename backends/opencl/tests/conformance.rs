//! A device of OpenCL is what the contract says.

use vrampool_backend::conformance;
use vrampool_opencl::{DeviceKind, OpenClDevice, list};
use vrampool_test_support::require;

/// Features that no OpenCL device has.
const ABSENT: [&str; 6] = [
    "memory_comes_and_goes_in_the_order_of_a_stream",
    "mapped_memory_is_memory",
    "physical_memory_is_seen_wherever_it_is_mapped",
    "mappings_that_cannot_be_are_refused",
    "virtual_memory_goes_in_any_order",
    "shared_handles_are_to_the_same_memory",
];

/// Returns every device, or skips the test without one.
fn all_devices() -> Vec<OpenClDevice> {
    let devices = require("opencl", list).unwrap_or_default();
    devices.iter().map(|device| OpenClDevice::open(device.ordinal).expect("a listed device")).collect()
}

#[test]
fn every_device_conforms() {
    for device in all_devices() {
        let report = conformance::check(&device).expect("conforms");
        let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
        assert_eq!(skipped, ABSENT, "{report}");
    }
}

#[test]
fn every_device_conforms_whatever_it_passes_for() {
    for device in all_devices() {
        for kind in [DeviceKind::Discrete, DeviceKind::Integrated] {
            let device = OpenClDevice::builder(device.listed().ordinal).kind(kind).build();
            conformance::check(&device.expect("a device")).expect("conforms");
        }
    }
}

#[test]
fn every_device_conforms_on_several_threads_at_once() {
    for device in all_devices() {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| conformance::check(&device).expect("conforms"));
            }
        });
    }
}

#[test]
fn memory_of_another_context_is_refused() {
    for device in all_devices() {
        let other = OpenClDevice::builder(device.listed().ordinal).build().expect("a device");
        conformance::check_foreign(&device, &other).expect("they are");
    }
}
