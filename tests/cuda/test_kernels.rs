//! The kernels for tests refuse what would leave a region.

use vrampool::backend::AllocationRequest;
use vrampool::cuda::{CudaDevice, CudaMemory, CudaStream, TestKernels};
use vrampool::{Backend, Placement, Region, RegionMut};
use vrampool_test_support::require;

struct Setup {
    device: CudaDevice,
    stream: CudaStream,
    kernels: TestKernels,
}

impl Setup {
    fn new() -> Option<Self> {
        let device = require("cuda", || CudaDevice::open(0))?;
        let stream = device.create_stream().expect("a stream");
        let kernels = TestKernels::load(&device).expect("kernels");
        Some(Self { device, stream, kernels })
    }

    fn memory(&self, values: &[f32]) -> CudaMemory {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let memory = self
            .device
            .allocate(&AllocationRequest::new(bytes.len() as u64, Placement::Device))
            .expect("memory");
        self.device.upload(&self.stream, &bytes, self.whole_mut(&memory)).expect("a copy");
        memory
    }

    fn whole<'a>(&self, memory: &'a CudaMemory) -> Region<'a, CudaMemory> {
        Region::whole(memory, &self.stream)
    }

    fn whole_mut<'a>(&self, memory: &'a CudaMemory) -> RegionMut<'a, CudaMemory> {
        RegionMut::whole(memory, &self.stream)
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let Some(setup) = Setup::new() else { return };
    let Setup { device, stream, kernels } = &setup;
    let (small, large) = (setup.memory(&[0.0; 4]), setup.memory(&[0.0; 16]));
    let other = device.create_stream().expect("a stream");
    let part = |range| setup.whole_mut(&large).slice(range).expect("a region");
    for refused in [
        kernels.write_pattern(&other, setup.whole_mut(&large), 0),
        kernels.write_pattern(stream, part(1..9), 0),
        kernels.count_mismatches(stream, setup.whole(&large), 0, setup.whole_mut(&small)),
        kernels.count_mismatches(stream, setup.whole(&large), 0, part(8..16)),
        kernels.count_mismatches(stream, part(1..9).as_region(), 0, part(16..24)),
        kernels.count_mismatches(&other, setup.whole(&small), 0, part(0..8)),
    ] {
        let error = refused.expect_err("it does not fit");
        assert!(matches!(error, vrampool::BackendError::InvalidArgument { .. }), "{error}");
    }
    device.synchronize(stream).expect("no fault");
}
