//! Which device is which, by wgpu's public API alone: on wgpu's stub, of which every device is of an instance of its
//! own and has the same number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vrampool_wgpu::{Backend, BackendError, WgpuDevice, wgpu};

/// A device, its queue, and how many errors got to its handler.
fn stub() -> (wgpu::Device, wgpu::Queue, Arc<AtomicUsize>) {
    let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
    let errors = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&errors);
    device.on_uncaptured_error(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    (device, queue, errors)
}

#[test]
fn devices_of_two_instances_are_two_and_one_wrapped_twice_is_one() {
    let ((device, queue, errors), (other, other_queue, other_errors)) = (stub(), stub());
    assert_eq!(device, other, "wgpu distinguishes them itself now");
    let one = WgpuDevice::from_parts(device.clone(), queue.clone()).expect("a device");
    let two = WgpuDevice::from_parts(other.clone(), other_queue.clone()).expect("a device");
    assert_ne!(one.id(), two.id());
    for _ in 0..3 {
        assert_eq!(WgpuDevice::from_parts(device.clone(), queue.clone()).expect("a device").id(), one.id());
        let again = WgpuDevice::from_parts(other.clone(), other_queue.clone()).expect("a device");
        assert_eq!(again.id(), two.id());
    }
    assert_eq!((errors.load(Ordering::Relaxed), other_errors.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn a_queue_of_another_device_is_refused_with_and_without_a_wrapper() {
    let ((device, queue, errors), (_other, other_queue, other_errors)) = (stub(), stub());
    let refused = || {
        let error = WgpuDevice::from_parts(device.clone(), other_queue.clone()).expect_err("it is another's");
        assert!(matches!(error, BackendError::InvalidArgument { argument: "queue", .. }), "{error}");
    };
    refused();
    let _wrapped = WgpuDevice::from_parts(device.clone(), queue).expect("a device");
    refused();
    assert_eq!((errors.load(Ordering::Relaxed), other_errors.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn a_device_that_others_poll_meanwhile_is_known() {
    let (device, queue, _) = stub();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    let _ = device.poll(wgpu::PollType::Poll);
                }
            });
        }
        let one = WgpuDevice::from_parts(device.clone(), queue.clone());
        let again = (0..100).map(|_| WgpuDevice::from_parts(device.clone(), queue.clone()));
        let again: Vec<_> = again.collect();
        end.store(true, Ordering::Relaxed);
        let one = one.expect("a device");
        for device in again {
            assert_eq!(device.expect("a device").id(), one.id());
        }
    });
}
