//! Kernels of CUDA devices.

use super::{Input, Kernels, Lane, Output, edges};
use std::time::Duration;
use vrampool::BackendError;
use vrampool::cuda::{CudaDevice, TestKernels};

pub(crate) struct CudaKernels(TestKernels);

impl CudaKernels {
    pub(crate) fn load(device: &CudaDevice) -> Result<Self, BackendError> {
        TestKernels::load(device).map(Self)
    }
}

impl Kernels<CudaDevice> for CudaKernels {
    fn launch(
        &self,
        lane: &Lane<CudaDevice>,
        length: Duration,
        input: Option<Input<'_, CudaDevice>>,
        (mut output, seed): Output<'_, CudaDevice>,
    ) -> Result<(), BackendError> {
        let Self(kernels) = self;
        let stream = &lane.stream;
        for edge in edges(output.len()) {
            kernels.write_pattern(stream, output.reborrow().slice(edge)?, seed)?;
        }
        kernels.delay(stream, length)?;
        for (region, seed) in input.into_iter().chain([(output.as_region(), seed)]) {
            for edge in edges(region.len()) {
                kernels.count_mismatches(stream, region.slice(edge)?, seed, lane.count()?)?;
            }
        }
        Ok(())
    }
}
