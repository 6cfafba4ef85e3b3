//! A device of OpenCL is what the contract says, on queues of either order.

#[path = "require/mod.rs"]
mod require;

use vrampool_backend::conformance;
use vrampool_opencl::{DeviceKind, OpenClDevice, QueueOrder};

#[test]
fn every_device_conforms_on_queues_of_either_order() {
    for device in require::devices() {
        for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
            let report = conformance::check(&device.clone().with_queue_order(order)).expect("conforms");
            let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
            // OpenCL has no memory in the order of a queue.
            assert_eq!(skipped, ["memory_comes_and_goes_in_the_order_of_a_stream"], "{report}");
        }
    }
}

#[test]
fn every_device_conforms_whatever_it_passes_for() {
    for device in require::devices() {
        for kind in [DeviceKind::Discrete, DeviceKind::Integrated] {
            let device = OpenClDevice::builder(device.listed().ordinal).kind(kind).build();
            conformance::check(&device.expect("a device")).expect("conforms");
        }
    }
}

#[test]
fn every_device_conforms_on_several_threads_at_once() {
    for device in require::devices() {
        std::thread::scope(|scope| {
            for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder, QueueOrder::InOrder] {
                let device = device.clone().with_queue_order(order);
                scope.spawn(move || conformance::check(&device).expect("conforms"));
            }
        });
    }
}
