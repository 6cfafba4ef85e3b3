//! The kernels for tests go through many submissions, and refuse what would leave a region. That they find every wrong
//! byte the pool's tests check on each device.

use crate::{first_device, read};
use vrampool_backend::AllocationRequest;
use vrampool_test_support::pattern;
use vrampool_wgpu::{
    Backend, BackendError, Placement, RegionMut, TestKernels, WgpuDevice, WgpuMemory, WgpuStream,
};

struct Setup {
    device: WgpuDevice,
    stream: WgpuStream,
    kernels: TestKernels,
}

impl Setup {
    fn new() -> Option<Self> {
        let device = first_device()?;
        let stream = device.create_stream().expect("a stream");
        let kernels = TestKernels::load(&device).expect("kernels");
        Some(Self { device, stream, kernels })
    }

    /// Memory of zeros.
    fn memory(&self, bytes: u64) -> WgpuMemory {
        self.device.allocate(&AllocationRequest::new(bytes, Placement::Device)).expect("memory")
    }

    fn whole<'a>(&self, memory: &'a WgpuMemory) -> RegionMut<'a, WgpuMemory> {
        RegionMut::whole(memory, &self.stream)
    }
}

#[test]
fn more_dispatches_than_one_submission_has() {
    let Some(setup) = Setup::new() else { return };
    let (bytes, count) = (setup.memory(4), setup.memory(8));
    let wrong = pattern(5, 4).iter().filter(|&&byte| byte != 0).count() as u64;
    for _ in 0..1000 {
        let bytes = setup.whole(&bytes).as_region();
        setup.kernels.count_mismatches(&setup.stream, bytes, 5, setup.whole(&count)).expect("queued");
    }
    let found = read(&setup.device, &setup.stream, &count);
    let found = u64::from_le_bytes(found.try_into().expect("8 bytes"));
    assert!(wrong > 0 && found == 1000 * wrong, "{found}");
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let Some(setup) = Setup::new() else { return };
    let Setup { device, stream, kernels, .. } = &setup;
    let (small, large) = (setup.memory(8), setup.memory(64));
    let other = device.create_stream().expect("a stream");
    let small = || setup.whole(&small);
    let odd = || setup.whole(&large).slice(1..9).expect("a region");
    let large = || setup.whole(&large);
    let elsewhere = WgpuDevice::open(0).expect("a device");
    let foreign = elsewhere.create_stream().expect("a stream");
    for refused in [
        kernels.count_mismatches(stream, small().as_region(), 0, large()),
        kernels.count_mismatches(stream, small().as_region(), 0, small()),
        kernels.count_mismatches(&other, large().as_region(), 0, small()),
        kernels.count_mismatches(&foreign, large().as_region(), 0, small()),
        kernels.write_pattern(stream, odd(), 0),
        kernels.write_pattern(&other, large(), 0),
        kernels.occupy(stream, odd(), 1),
        kernels.occupy(&foreign, large(), 1),
    ] {
        let error = refused.expect_err("it does not fit");
        assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
    }
    device.synchronize(stream).expect("no fault");
}
