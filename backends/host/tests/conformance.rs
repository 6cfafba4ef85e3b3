//! The host device is what the contract says, whatever it passes for.

use std::time::Duration;
use vrampool_backend::conformance;
use vrampool_host::{DeviceKind, HostDevice};

#[test]
fn every_kind_of_device_conforms() {
    for kind in [DeviceKind::Cpu, DeviceKind::Integrated, DeviceKind::Discrete] {
        let device = HostDevice::builder().kind(kind).memory_limit(64 << 20).build();
        let report = conformance::check(&device).expect("conforms");
        // Elsewhere there is no virtual memory, which five checks are about.
        let skipped = if cfg!(target_os = "linux") { 0 } else { 5 };
        assert_eq!(report.skipped.len(), skipped, "{report}");
        assert_eq!(device.races(), 0, "the suite itself orders its work");
    }
}

#[test]
fn a_slow_device_conforms() {
    let device = HostDevice::builder().work_latency(Duration::from_micros(20)).build();
    conformance::check(&device).expect("conforms");
}

#[test]
fn a_device_with_virtual_memory_disabled_conforms_as_one_without_it() {
    use vrampool_host::{Backend, Capabilities};
    let device = HostDevice::builder().virtual_memory(false).build();
    assert!(device.virtual_memory().is_none() && device.shared_handles().is_none());
    let lacks = Capabilities::VIRTUAL_MEMORY | Capabilities::SHARED_HANDLES;
    assert!(!device.properties().capabilities.intersects(lacks));
    conformance::check(&device).expect("conforms");
}

#[test]
fn memory_of_another_device_is_refused() {
    let [one, other] = [(); 2].map(|()| HostDevice::builder().memory_limit(16 << 20).build());
    conformance::check_foreign(&one, &other).expect("they are");
}
