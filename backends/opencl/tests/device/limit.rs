//! Out of memory, by a limit: exact, typed, and over when memory is released.

use crate::{BYTES, all_devices, drained, fill, read};
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{Backend, BackendError, DeviceKind, Memory, OpenClDevice, Placement};
use vrampool_test_support::{BackendExt, threads_that_drop_memory_in_use_are_not_refused};

#[test]
fn a_full_device_is_a_typed_error_and_what_is_dropped_comes_back() {
    for device in all_devices() {
        for kind in [device.properties().kind, DeviceKind::Discrete] {
            let device =
                OpenClDevice::builder(device.listed().ordinal).memory_limit(4 * BYTES).kind(kind).build();
            let device = device.expect("a device");
            let stream = device.stream();
            for placement in [Placement::Device, Placement::HostVisible] {
                let mut held: Vec<_> = (0..4).map(|_| device.memory(BYTES, placement)).collect();
                assert_eq!(device.memory_info().expect("an answer").free_bytes, 0);
                assert_eq!(device.memory_info().expect("an answer").total_bytes, 4 * BYTES);
                let error = device.allocate(&AllocationRequest::new(1, placement)).expect_err("it is full");
                assert_eq!(error, BackendError::out_of_memory(1, Some(0)));
                for (value, memory) in held.iter().enumerate() {
                    fill(&device, &stream, memory, value as u8);
                }
                held.pop();
                let again =
                    device.allocate(&AllocationRequest::new(BYTES, placement)).expect("there is room again");
                assert_eq!(again.len(), BYTES);
                for (value, memory) in held.iter().enumerate() {
                    assert_eq!(read(&device, &stream, memory), vec![value as u8; BYTES as usize]);
                }
                drop((held, again));
                drained(&device);
                assert_eq!(device.memory_info().expect("an answer").free_bytes, 4 * BYTES);
            }
        }
    }
}

#[test]
fn threads_that_fill_a_device_get_all_of_it_and_no_more() {
    for device in all_devices() {
        let device = OpenClDevice::builder(device.listed().ordinal).memory_limit(10 * BYTES).build();
        let device = device.expect("a device");
        let got: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (0..5)
                            .map_while(|_| {
                                device.allocate(&AllocationRequest::new(BYTES, Placement::Device)).ok()
                            })
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            let held: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            held.iter().map(Vec::len).sum()
        });
        assert_eq!(got, 10);
        drained(&device);
        assert_eq!(device.memory_info().expect("an answer").free_bytes, 10 * BYTES);
    }
}

#[test]
fn a_limit_is_no_more_than_the_device_has() {
    for device in all_devices() {
        let ordinal = device.listed().ordinal;
        let huge = OpenClDevice::builder(ordinal).memory_limit(u64::MAX).build().expect("a device");
        assert_eq!(huge.memory_info().expect("an answer").total_bytes, device.properties().total_bytes);
        let nothing = OpenClDevice::builder(ordinal).memory_limit(0).build().expect("a device");
        assert!(
            nothing
                .allocate(&AllocationRequest::new(1, Placement::Device))
                .expect_err("it is full")
                .is_out_of_memory()
        );
    }
}

#[test]
fn threads_that_drop_memory_in_use_at_the_limit_are_never_refused() {
    for device in all_devices() {
        for kind in [DeviceKind::Integrated, DeviceKind::Discrete] {
            let limit = 5 * BYTES;
            let device =
                OpenClDevice::builder(device.listed().ordinal).memory_limit(limit).kind(kind).build();
            let device = device.expect("a device");
            let placements = [Placement::Device, Placement::HostVisible];
            threads_that_drop_memory_in_use_are_not_refused(&device, BYTES, placements);
            drained(&device);
            assert_eq!(device.memory_info().expect("an answer").free_bytes, limit);
        }
    }
}
