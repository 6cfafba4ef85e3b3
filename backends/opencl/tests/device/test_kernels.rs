//! Kernels for tests that threads share.

use crate::all_devices;
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{Backend, Placement, RegionMut, TestKernels};

#[test]
fn threads_share_kernels() {
    for device in &all_devices() {
        let kernels = &TestKernels::load(device).expect("kernels");
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let stream = device.create_stream().expect("a stream");
                    for round in 0..50 {
                        let bytes = 64 * (thread + 1);
                        let memory = device
                            .allocate(&AllocationRequest::new(bytes, Placement::Device))
                            .expect("memory");
                        let count =
                            device.allocate(&AllocationRequest::new(8, Placement::Device)).expect("memory");
                        device.fill(&stream, RegionMut::whole(&count, &stream), 0).expect("a fill");
                        let seed = thread * 1000 + round;
                        let whole = || RegionMut::whole(&memory, &stream);
                        kernels.write_pattern(&stream, whole(), seed).expect("queued");
                        let counted = RegionMut::whole(&count, &stream);
                        kernels
                            .count_mismatches(&stream, whole().as_region(), seed, counted)
                            .expect("queued");
                        let wrong = crate::read(device, &stream, &count);
                        assert_eq!(wrong, [0; 8], "another thread's arguments");
                    }
                });
            }
        });
    }
}
