//! Writing and verifying on NVIDIA GPUs.

use vrampool::cuda::{CudaDevice, CudaMemory, CudaStream, Kernels};
use vrampool::trace::Touch;
use vrampool::{BackendError, Region, RegionMut};

/// By the kernels that come with the backend.
#[derive(Debug)]
pub(crate) struct CudaTouch(pub(crate) Kernels);

impl Touch<CudaDevice> for CudaTouch {
    fn write(
        &self,
        stream: &CudaStream,
        bytes: RegionMut<'_, CudaMemory>,
        seed: u64,
    ) -> Result<(), BackendError> {
        self.0.write_pattern(stream, bytes, seed)
    }

    fn verify(
        &self,
        stream: &CudaStream,
        bytes: Region<'_, CudaMemory>,
        seed: u64,
        count: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        self.0.count_mismatches(stream, bytes, seed, count)
    }
}
