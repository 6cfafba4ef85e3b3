//! The network: fully connected layers with ReLU between them, and one step of learning.

use super::compute::Compute;
use super::layer::{Gradients, Layer};
use super::loader::Batch;
use super::matrix::Matrix;
use super::tally::Tally;
use crate::kernels::{Activation, AdamStep, Kernels};
use fastrand::Rng;
use vrampool::{Backend, Error};

const BETA_1: f32 = 0.9;
const BETA_2: f32 = 0.999;
const EPSILON: f32 = 1e-8;
/// How much of a label's certainty is spread over all digits: with so few images it is worth half a percent.
const SMOOTHING: f32 = 0.2;

/// A multilayer perceptron.
#[derive(Debug)]
pub(crate) struct Network<B: Backend> {
    hidden: Vec<Layer<B>>,
    output: Layer<B>,
    /// Steps learned so far.
    steps: u64,
}

impl<B: Backend> Network<B> {
    /// With random weights, layers as wide as `hidden` says.
    pub(crate) fn new<K: Kernels<B>>(
        compute: &Compute<B, K>,
        inputs: usize,
        hidden: &[usize],
        outputs: usize,
        rng: &mut Rng,
    ) -> Result<Self, Error> {
        let mut width = inputs;
        let mut layers = Vec::new();
        for &next in hidden {
            layers.push(Layer::new(compute, width, next, rng)?);
            width = next;
        }
        Ok(Self { hidden: layers, output: Layer::new(compute, width, outputs, rng)?, steps: 0 })
    }

    /// Steps learned so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Learns from a batch. Enqueues work and returns: buffers that go out of scope are used again by the
    /// next layer, in the stream's order.
    pub(crate) fn train<K: Kernels<B>>(
        &mut self,
        compute: &Compute<B, K>,
        batch: &Batch<B>,
        rate: f32,
        tally: &mut Tally<B>,
    ) -> Result<(), Error> {
        let (hidden, logits) = self.forward(compute, &batch.pixels)?;
        let sums = tally.count(logits.rows());
        let gradient = compute.softmax_cross_entropy(&batch.labels, SMOOTHING, logits, sums)?;
        let gradients = self.backward(compute, &batch.pixels, hidden, gradient)?;
        self.update(compute, rate, gradients)
    }

    /// Counts in `tally` how the network does on a batch.
    pub(crate) fn evaluate<K: Kernels<B>>(
        &self,
        compute: &Compute<B, K>,
        batch: &Batch<B>,
        tally: &mut Tally<B>,
    ) -> Result<(), Error> {
        let (_, logits) = self.forward(compute, &batch.pixels)?;
        let sums = tally.count(logits.rows());
        compute.softmax_cross_entropy(&batch.labels, SMOOTHING, logits, sums)?;
        Ok(())
    }

    /// The outputs of each hidden layer, and the logits.
    fn forward<K: Kernels<B>>(
        &self,
        compute: &Compute<B, K>,
        inputs: &Matrix<B>,
    ) -> Result<(Vec<Matrix<B>>, Matrix<B>), Error> {
        let mut outputs: Vec<Matrix<B>> = Vec::with_capacity(self.hidden.len());
        for layer in &self.hidden {
            outputs.push(layer.forward(compute, outputs.last().unwrap_or(inputs), Activation::Relu)?);
        }
        let logits = self.output.forward(compute, outputs.last().unwrap_or(inputs), Activation::Identity)?;
        Ok((outputs, logits))
    }

    /// The gradient by each layer's parameters, from the last layer to the first. Each layer's outputs go
    /// back to the pool as soon as they are used up.
    fn backward<K: Kernels<B>>(
        &self,
        compute: &Compute<B, K>,
        inputs: &Matrix<B>,
        hidden: Vec<Matrix<B>>,
        mut gradient: Matrix<B>,
    ) -> Result<Vec<Gradients<B>>, Error> {
        let mut gradients = Vec::with_capacity(hidden.len() + 1);
        let mut layer = &self.output;
        for (below, outputs) in self.hidden.iter().zip(hidden).rev() {
            gradients.push(layer.gradients(compute, &outputs, &gradient)?);
            gradient = layer.input_gradient(compute, &gradient)?;
            compute.relu_backward(&outputs, &mut gradient)?;
            layer = below;
        }
        gradients.push(layer.gradients(compute, inputs, &gradient)?);
        Ok(gradients)
    }

    fn update<K: Kernels<B>>(
        &mut self,
        compute: &Compute<B, K>,
        rate: f32,
        gradients: Vec<Gradients<B>>,
    ) -> Result<(), Error> {
        self.steps += 1;
        let correction = |beta: f32| 1.0 - beta.powf(self.steps as f32);
        let rate = rate * correction(BETA_2).sqrt() / correction(BETA_1);
        let step = AdamStep { rate, beta_1: BETA_1, beta_2: BETA_2, epsilon: EPSILON };
        let layers = std::iter::once(&mut self.output).chain(self.hidden.iter_mut().rev());
        for (layer, gradients) in layers.zip(gradients) {
            layer.update(compute, step, &gradients)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::HostKernels;
    use vrampool::host::HostDevice;
    use vrampool::{Backend, Pool};

    struct Trial {
        device: HostDevice,
        compute: Compute<HostDevice, HostKernels>,
        network: Network<HostDevice>,
        batch: Batch<HostDevice>,
    }

    /// A small network, and a batch that came on another stream.
    fn trial(max_cached: u64) -> Trial {
        let device = HostDevice::new();
        let pool = Pool::builder(&device).max_cached_bytes(max_cached).build().expect("a pool");
        let copy = device.create_stream().expect("a stream");
        let compute = Compute::new(&pool, HostKernels).expect("a stream");
        let mut rng = Rng::with_seed(3);
        let network = Network::new(&compute, 4, &[6, 5], 3, &mut rng).expect("memory");
        let values: Vec<f32> = (0..7 * 4).map(|_| rng.f32()).collect();
        let mut pixels = Matrix::new(&pool, 7, 4, &copy).expect("memory");
        pixels.write(&values, &copy).expect("a copy");
        let mut labels = pool.allocate(7 * 4, &copy).expect("memory");
        labels.write(bytemuck::cast_slice(&[0_u32, 1, 2, 0, 1, 2, 0]), &copy).expect("a copy");
        Trial { device, compute, network, batch: Batch { pixels, labels } }
    }

    impl Trial {
        fn loss(&self) -> f32 {
            let mut tally = Tally::new(&self.compute).expect("memory");
            self.network.evaluate(&self.compute, &self.batch, &mut tally).expect("work");
            tally.read(&self.compute).expect("an outcome").loss
        }

        fn gradients(&self) -> Vec<[Vec<f32>; 2]> {
            let Self { compute, network, batch, .. } = self;
            let mut tally = Tally::new(compute).expect("memory");
            let (hidden, logits) = network.forward(compute, &batch.pixels).expect("work");
            let sums = tally.count(logits.rows());
            let gradient =
                compute.softmax_cross_entropy(&batch.labels, SMOOTHING, logits, sums).expect("work");
            let gradients = network.backward(compute, &batch.pixels, hidden, gradient).expect("work");
            let read = |matrix| compute.download(matrix).expect("elements");
            gradients.iter().rev().map(|layer| [read(&layer.weights), read(&layer.bias)]).collect()
        }

        /// Adds to one element of the weights (0) or the bias (1) of a layer.
        fn nudge(&mut self, layer: usize, parameter: usize, element: usize, by: f32) {
            let layer = self.network.hidden.get_mut(layer).unwrap_or(&mut self.network.output);
            let [weights, bias] = layer.parameters();
            let matrix = if parameter == 0 { weights } else { bias };
            let mut values = self.compute.download(matrix).expect("elements");
            values[element] += by;
            *matrix = self.compute.upload(matrix.rows(), matrix.columns(), &values).expect("memory");
        }
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        const STEP: f32 = 2e-3;
        let mut trial = trial(1 << 30);
        let gradients = trial.gradients();
        let mut largest: f32 = 0.0;
        for (layer, parameters) in gradients.iter().enumerate() {
            for (parameter, gradient) in parameters.iter().enumerate() {
                for (element, &gradient) in gradient.iter().enumerate() {
                    trial.nudge(layer, parameter, element, STEP);
                    let above = trial.loss();
                    trial.nudge(layer, parameter, element, -2.0 * STEP);
                    let below = trial.loss();
                    trial.nudge(layer, parameter, element, STEP);
                    let slope = (above - below) / (2.0 * STEP);
                    assert!(
                        (slope - gradient).abs() < 2e-3,
                        "layer {layer}, parameter {parameter}, element {element}: {gradient} is not {slope}"
                    );
                    largest = largest.max(gradient.abs());
                }
            }
        }
        assert!(largest > 0.05, "the loss does not depend on anything");
    }

    #[test]
    fn learning_is_the_same_whatever_the_pool_keeps_and_no_work_races() {
        let losses = [1 << 30, 0].map(|max_cached| {
            let mut trial = trial(max_cached);
            let before = trial.loss();
            let mut tally = Tally::new(&trial.compute).expect("memory");
            for _ in 0..200 {
                trial.network.train(&trial.compute, &trial.batch, 1e-2, &mut tally).expect("work");
            }
            let after = trial.loss();
            assert!(after < before / 2.0, "{before} became {after}");
            assert_eq!((trial.device.races(), trial.network.steps()), (0, 200));
            after.to_bits()
        });
        assert_eq!(losses[0], losses[1]);
    }
}
