//! The kernels for tests work on several threads, and refuse what would leave a region. That they find every wrong
//! byte the pool's tests check on each device.

use crate::all_devices;
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{
    Backend, BackendError, DeviceKind, OpenClDevice, OpenClMemory, OpenClStream, Placement, RegionMut,
    TestKernels,
};

struct Setup {
    device: OpenClDevice,
    stream: OpenClStream,
    kernels: TestKernels,
}

impl Setup {
    fn memory(&self, bytes: u64) -> OpenClMemory {
        self.device.allocate(&AllocationRequest::new(bytes, Placement::Device)).expect("memory")
    }
}

/// Every device, as it is and as if it were discrete: memory is in other places then.
fn setups() -> Vec<Setup> {
    let setup = |device: OpenClDevice| Setup {
        stream: device.create_stream().expect("a stream"),
        kernels: TestKernels::load(&device).expect("kernels"),
        device,
    };
    let discrete = |device: &OpenClDevice| {
        let builder = OpenClDevice::builder(device.listed().ordinal).kind(DeviceKind::Discrete);
        builder.build().expect("a device")
    };
    all_devices().into_iter().flat_map(|device| [discrete(&device), device]).map(setup).collect()
}

#[test]
fn threads_share_kernels() {
    for setup in setups() {
        let Setup { device, kernels, .. } = &setup;
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

#[test]
fn operands_that_do_not_fit_are_refused() {
    for setup in setups() {
        let Setup { device, stream, kernels } = &setup;
        let (small, large) = (setup.memory(16), setup.memory(64));
        let other = device.create_stream().expect("a stream");
        let whole = |memory| RegionMut::whole(memory, stream);
        let at_one = || whole(&large).slice(1..9).expect("a region");
        let count = || whole(&small).slice(..8).expect("a region");
        for refused in [
            kernels.write_pattern(stream, at_one(), 0),
            kernels.write_pattern(&other, whole(&large), 0),
            kernels.count_mismatches(stream, whole(&large).as_region(), 0, whole(&small)),
            kernels.count_mismatches(stream, whole(&small).as_region(), 0, count()),
            kernels.count_mismatches(stream, at_one().as_region(), 0, count()),
            kernels.count_mismatches(&other, whole(&large).as_region(), 0, count()),
        ] {
            let error = refused.expect_err("it does not fit");
            assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
        }
        device.synchronize(stream).expect("no fault");
    }
}
