//! The kernels on NVIDIA GPUs: those that come with the backend.

use super::kernels::{Activation, AdamStep, Kernels};
use super::matrix::{View, ViewMut};
use vrampool::cuda::{self, CudaDevice, CudaMemory, CudaStream, Factor};
use vrampool::{BackendError, Region, RegionMut};

impl Kernels<CudaDevice> for cuda::Kernels {
    fn multiply(
        &self,
        stream: &CudaStream,
        left: View<'_, CudaMemory>,
        right: View<'_, CudaMemory>,
        product: ViewMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        self.multiply(stream, &factor(left), &factor(right), product.region)
    }

    fn add_bias(
        &self,
        stream: &CudaStream,
        bias: Region<'_, CudaMemory>,
        activation: Activation,
        values: ViewMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        let floor = match activation {
            Activation::Identity => f32::NEG_INFINITY,
            Activation::Relu => 0.0,
        };
        self.add_bias(stream, bias, floor, values.region)
    }

    fn relu_backward(
        &self,
        stream: &CudaStream,
        outputs: Region<'_, CudaMemory>,
        gradient: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        self.relu_backward(stream, outputs, gradient)
    }

    fn sum_rows(
        &self,
        stream: &CudaStream,
        values: View<'_, CudaMemory>,
        sums: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        self.sum_rows(stream, values.region, sums)
    }

    fn softmax_cross_entropy(
        &self,
        stream: &CudaStream,
        labels: Region<'_, CudaMemory>,
        smoothing: f32,
        logits: ViewMut<'_, CudaMemory>,
        tally: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        self.softmax_cross_entropy(stream, labels, smoothing, logits.region, tally)
    }

    fn adam(
        &self,
        stream: &CudaStream,
        step: AdamStep,
        gradient: Region<'_, CudaMemory>,
        values: RegionMut<'_, CudaMemory>,
        moments: [RegionMut<'_, CudaMemory>; 2],
    ) -> Result<(), BackendError> {
        let AdamStep { rate, beta_1, beta_2, epsilon } = step;
        self.adam(stream, cuda::Adam { rate, beta_1, beta_2, epsilon }, gradient, values, moments)
    }
}

fn factor(View { rows, columns, strides, region }: View<'_, CudaMemory>) -> Factor<'_> {
    Factor { rows, columns, strides, region }
}
