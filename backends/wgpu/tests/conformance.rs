//! A device of wgpu's is what the contract says.

use vrampool_backend::conformance;
use vrampool_test_support::require;
use vrampool_wgpu::{Capabilities, WgpuDevice, wgpu};

/// Features that no wgpu device has.
const ABSENT: [&str; 7] = [
    "copy_within_one_memory",
    "memory_comes_and_goes_in_the_order_of_a_stream",
    "mapped_memory_is_memory",
    "physical_memory_is_seen_wherever_it_is_mapped",
    "mappings_that_cannot_be_are_refused",
    "virtual_memory_goes_in_any_order",
    "shared_handles_are_to_the_same_memory",
];

fn conforms(device: &WgpuDevice) {
    let report = conformance::check(device).expect("conforms");
    eprintln!("{report}");
    let mut absent = ABSENT.to_vec();
    if !device.properties().capabilities.contains(Capabilities::HOST_VISIBLE) {
        absent.insert(2, "host_visible_memory_is_mapped");
    }
    if device.listed().interface == "noop" {
        // It runs no kernels.
        absent.insert(1, "bytes_behind_any_length_stay");
    }
    let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(skipped, absent, "{report}");
}

use vrampool_wgpu::Backend as _;

#[test]
fn a_device_conforms_and_can_map() {
    let Some(device) = require("wgpu", || WgpuDevice::open(0)) else { return };
    // Memory that stays mapped takes Vulkan.
    let can_map = device.properties().capabilities.contains(Capabilities::HOST_VISIBLE);
    assert_eq!(can_map, device.listed().interface == "vulkan", "{device:?}");
    conforms(&device);
}

#[test]
fn a_device_with_a_limit_conforms() {
    let Some(device) = require("wgpu", || WgpuDevice::open(0)) else { return };
    conforms(&device.with_memory_limit(16 << 20).expect("a device"));
}

#[test]
fn memory_of_another_device_is_refused() {
    let Some(device) = require("wgpu", || WgpuDevice::open(0)) else { return };
    let other = device.with_memory_limit(16 << 20).expect("a device");
    conformance::check_foreign(&device, &other).expect("they are");
    conformance::check_foreign(&other, &device).expect("they are");
}

#[test]
fn several_threads_at_once_conform() {
    let Some(device) = require("wgpu", || WgpuDevice::open(0)) else { return };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| conforms(&device));
        }
    });
}

/// wgpu's own stub of a device, which moves bytes and checks every call.
#[test]
fn the_stub_conforms_without_a_driver() {
    let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
    conforms(&WgpuDevice::from_parts(device, queue).expect("a device"));
}
