//! The kernels that come with backends: the same everywhere, but for the types.

macro_rules! kernels_of {
    ($backend:ident, $Device:ident) => {
        mod $backend {
            use crate::kernels::{Activation, AdamStep, Kernels, Oscillator, View, ViewMut};
            use vrampool::$backend::{self as own, $Device};
            use vrampool::{Backend, BackendError, Region, RegionMut};

            type Memory = <$Device as Backend>::Memory;
            type Stream = <$Device as Backend>::Stream;

            impl Kernels<$Device> for own::Kernels {
                fn multiply(
                    &self,
                    stream: &Stream,
                    left: View<'_, Memory>,
                    right: View<'_, Memory>,
                    product: ViewMut<'_, Memory>,
                ) -> Result<(), BackendError> {
                    self.multiply(stream, &factor(left), &factor(right), product.region)
                }

                fn add_bias(
                    &self,
                    stream: &Stream,
                    bias: Region<'_, Memory>,
                    activation: Activation,
                    values: ViewMut<'_, Memory>,
                ) -> Result<(), BackendError> {
                    self.add_bias(stream, bias, activation.floor(), values.region)
                }

                fn relu_backward(
                    &self,
                    stream: &Stream,
                    outputs: Region<'_, Memory>,
                    gradient: RegionMut<'_, Memory>,
                ) -> Result<(), BackendError> {
                    self.relu_backward(stream, outputs, gradient)
                }

                fn sum_rows(
                    &self,
                    stream: &Stream,
                    values: View<'_, Memory>,
                    sums: RegionMut<'_, Memory>,
                ) -> Result<(), BackendError> {
                    self.sum_rows(stream, values.region, sums)
                }

                fn softmax_cross_entropy(
                    &self,
                    stream: &Stream,
                    labels: Region<'_, Memory>,
                    smoothing: f32,
                    logits: ViewMut<'_, Memory>,
                    tally: RegionMut<'_, Memory>,
                ) -> Result<(), BackendError> {
                    self.softmax_cross_entropy(stream, labels, smoothing, logits.region, tally)
                }

                fn adam(
                    &self,
                    stream: &Stream,
                    step: AdamStep,
                    gradient: Region<'_, Memory>,
                    values: RegionMut<'_, Memory>,
                    moments: [RegionMut<'_, Memory>; 2],
                ) -> Result<(), BackendError> {
                    let AdamStep { rate, beta_1, beta_2, epsilon } = step;
                    self.adam(stream, own::Adam { rate, beta_1, beta_2, epsilon }, gradient, values, moments)
                }
            }

            impl Oscillator<$Device> for own::Kernels {
                fn solve(
                    &self,
                    stream: &Stream,
                    parameters: Region<'_, Memory>,
                    step: f32,
                    steps: u32,
                    states: RegionMut<'_, Memory>,
                ) -> Result<(), BackendError> {
                    self.van_der_pol(stream, parameters, step, steps, states)
                }
            }

            fn factor(View { rows, columns, strides, region }: View<'_, Memory>) -> own::Factor<'_> {
                own::Factor { rows, columns, strides, region }
            }
        }
    };
}

kernels_of!(wgpu, WgpuDevice);
