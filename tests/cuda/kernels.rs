//! The kernels that come with the backend refuse what would leave a region.

use crate::gpu;
use vrampool::cuda::{CudaDevice, CudaMemory, CudaStream, Factor, Kernels};
use vrampool::{Backend, Placement, Region, RegionMut};

struct Setup {
    device: CudaDevice,
    stream: CudaStream,
    kernels: Kernels,
}

impl Setup {
    fn new() -> Option<Self> {
        let device = gpu::device()?;
        let stream = device.create_stream().expect("a stream");
        let kernels = Kernels::load(&device).expect("kernels");
        Some(Self { device, stream, kernels })
    }

    fn memory(&self, values: &[f32]) -> CudaMemory {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let memory = self.device.allocate(bytes.len() as u64, Placement::Device.into()).expect("memory");
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
fn what_does_not_fit_is_refused() {
    let Some(setup) = Setup::new() else { return };
    let Setup { device, stream, kernels } = &setup;
    let (small, large) = (setup.memory(&[0.0; 4]), setup.memory(&[0.0; 16]));
    let other = device.create_stream().expect("a stream");
    let factor = |rows, columns| Factor { rows, columns, strides: (columns, 1), region: setup.whole(&small) };
    let product = || setup.whole_mut(&large);
    for refused in [
        kernels.multiply(stream, &factor(2, 2), &factor(3, 1), product()),
        kernels.multiply(stream, &factor(4, 2), &factor(2, 4), product()),
        kernels.multiply(stream, &factor(2, 2), &factor(2, 2), product()),
        kernels.multiply(stream, &factor(2, 2), &factor(2, 2), setup.whole_mut(&small)),
        kernels.relu_backward(stream, setup.whole(&small), product()),
        kernels.relu_backward(&other, setup.whole(&small), setup.whole_mut(&small)),
        kernels.softmax_cross_entropy(stream, setup.whole(&small), 0.1, product(), setup.whole_mut(&small)),
        kernels.count_mismatches(stream, setup.whole(&large), 0, setup.whole_mut(&small)),
    ] {
        let error = refused.expect_err("it does not fit");
        assert!(matches!(error, vrampool::BackendError::InvalidArgument { .. }), "{error}");
    }
    device.synchronize(stream).expect("no fault");
}
