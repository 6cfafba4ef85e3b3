//! One fully connected layer: weights, bias, and the state of Adam.

use super::compute::Compute;
use super::matrix::Matrix;
use crate::kernels::{Activation, AdamStep, Kernels};
use fastrand::Rng;
use vrampool::{Backend, Error};

/// `outputs = activation(inputs · weights + bias)`, an example a row.
#[derive(Debug)]
pub(crate) struct Layer<B: Backend> {
    weights: Parameter<B>,
    bias: Parameter<B>,
}

/// Numbers that are learned.
#[derive(Debug)]
struct Parameter<B: Backend> {
    values: Matrix<B>,
    /// The means of the gradient and of its square.
    moments: [Matrix<B>; 2],
}

/// The gradient of the loss by a layer's parameters.
#[derive(Debug)]
pub(crate) struct Gradients<B: Backend> {
    pub(crate) weights: Matrix<B>,
    pub(crate) bias: Matrix<B>,
}

impl<B: Backend> Layer<B> {
    /// Random weights after K. He et al. (2015), no bias.
    pub(crate) fn new<K: Kernels<B>>(
        compute: &Compute<B, K>,
        inputs: usize,
        outputs: usize,
        rng: &mut Rng,
    ) -> Result<Self, Error> {
        let deviation = (2.0 / inputs as f32).sqrt();
        let weights: Vec<f32> = (0..inputs * outputs).map(|_| deviation * normal(rng)).collect();
        Ok(Self {
            weights: Parameter::new(compute, compute.upload(inputs, outputs, &weights)?)?,
            bias: Parameter::new(compute, compute.zeroed(1, outputs)?)?,
        })
    }

    pub(crate) fn forward<K: Kernels<B>>(
        &self,
        compute: &Compute<B, K>,
        inputs: &Matrix<B>,
        activation: Activation,
    ) -> Result<Matrix<B>, Error> {
        let mut outputs = compute.multiply(compute.view(inputs)?, compute.view(&self.weights.values)?)?;
        compute.add_bias(&self.bias.values, activation, &mut outputs)?;
        Ok(outputs)
    }

    /// The gradient by the parameters, of the gradient by the outputs before activation.
    pub(crate) fn gradients<K: Kernels<B>>(
        &self,
        compute: &Compute<B, K>,
        inputs: &Matrix<B>,
        outputs: &Matrix<B>,
    ) -> Result<Gradients<B>, Error> {
        Ok(Gradients {
            weights: compute.multiply(compute.view(inputs)?.transposed(), compute.view(outputs)?)?,
            bias: compute.sum_rows(outputs)?,
        })
    }

    /// The gradient by the inputs, of the gradient by the outputs before activation.
    pub(crate) fn input_gradient<K: Kernels<B>>(
        &self,
        compute: &Compute<B, K>,
        outputs: &Matrix<B>,
    ) -> Result<Matrix<B>, Error> {
        compute.multiply(compute.view(outputs)?, compute.view(&self.weights.values)?.transposed())
    }

    pub(crate) fn update<K: Kernels<B>>(
        &mut self,
        compute: &Compute<B, K>,
        step: AdamStep,
        gradients: &Gradients<B>,
    ) -> Result<(), Error> {
        let Self { weights, bias } = self;
        compute.adam(step, &gradients.weights, &mut weights.values, &mut weights.moments)?;
        compute.adam(step, &gradients.bias, &mut bias.values, &mut bias.moments)
    }

    /// Its weights and its bias.
    #[cfg(test)]
    pub(crate) fn parameters(&mut self) -> [&mut Matrix<B>; 2] {
        [&mut self.weights.values, &mut self.bias.values]
    }
}

impl<B: Backend> Parameter<B> {
    fn new<K: Kernels<B>>(compute: &Compute<B, K>, values: Matrix<B>) -> Result<Self, Error> {
        let (rows, columns) = (values.rows(), values.columns());
        Ok(Self { values, moments: [compute.zeroed(rows, columns)?, compute.zeroed(rows, columns)?] })
    }
}

/// A number of the standard normal distribution, after G. Box and M. Muller (1958).
fn normal(rng: &mut Rng) -> f32 {
    // 1 - f32() is above 0, so that its logarithm is finite.
    let radius = (-2.0 * (1.0 - rng.f32()).ln()).sqrt();
    radius * (std::f32::consts::TAU * rng.f32()).cos()
}
