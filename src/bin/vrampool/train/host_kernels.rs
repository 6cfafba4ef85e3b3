//! The kernels on the host device: closures on its streams.

use super::kernels::{Activation, AdamStep, Kernels};
use super::matrix::{View, ViewMut};
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder};
use vrampool::host::{HostDevice, HostMemory, HostStream};
use vrampool::{BackendError, Region, RegionMut};

/// The host device's kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostKernels;

impl Kernels<HostDevice> for HostKernels {
    fn multiply(
        &self,
        stream: &HostStream,
        left: View<'_, HostMemory>,
        right: View<'_, HostMemory>,
        product: ViewMut<'_, HostMemory>,
    ) -> Result<(), BackendError> {
        let layout = |view: &View<'_, HostMemory>| (view.rows, view.columns).strides(view.strides);
        let (left_layout, right_layout) = (layout(&left), layout(&right));
        let shape = (product.rows, product.columns);
        stream.launch([left.region, right.region], [product.region], move |[left, right], [product]| {
            let left = ArrayView2::from_shape(left_layout, left);
            let right = ArrayView2::from_shape(right_layout, right);
            match (left, right, ArrayViewMut2::from_shape(shape, product)) {
                (Ok(left), Ok(right), Ok(mut product)) => {
                    general_mat_mul(1.0_f32, &left, &right, 0.0, &mut product);
                }
                _ => unreachable!("a matrix is as large as its buffer"),
            }
        })
    }

    fn add_bias(
        &self,
        stream: &HostStream,
        bias: Region<'_, HostMemory>,
        activation: Activation,
        values: ViewMut<'_, HostMemory>,
    ) -> Result<(), BackendError> {
        let floor = match activation {
            Activation::Identity => f32::NEG_INFINITY,
            Activation::Relu => 0.0,
        };
        stream.launch([bias], [values.region], move |[bias], [values]: [&mut [f32]; 1]| {
            for row in values.chunks_exact_mut(bias.len()) {
                for (value, bias) in row.iter_mut().zip(bias) {
                    *value = (*value + bias).max(floor);
                }
            }
        })
    }

    fn relu_backward(
        &self,
        stream: &HostStream,
        outputs: Region<'_, HostMemory>,
        gradient: RegionMut<'_, HostMemory>,
    ) -> Result<(), BackendError> {
        stream.launch([outputs], [gradient], |[outputs], [gradient]: [&mut [f32]; 1]| {
            for (gradient, output) in gradient.iter_mut().zip(outputs) {
                *gradient = if *output > 0.0 { *gradient } else { 0.0 };
            }
        })
    }

    fn sum_rows(
        &self,
        stream: &HostStream,
        values: View<'_, HostMemory>,
        sums: RegionMut<'_, HostMemory>,
    ) -> Result<(), BackendError> {
        stream.launch([values.region], [sums], |[values], [sums]: [&mut [f32]; 1]| {
            sums.fill(0.0);
            for row in values.chunks_exact(sums.len()) {
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum += value;
                }
            }
        })
    }

    fn softmax_cross_entropy(
        &self,
        stream: &HostStream,
        labels: Region<'_, HostMemory>,
        smoothing: f32,
        logits: ViewMut<'_, HostMemory>,
        tally: RegionMut<'_, HostMemory>,
    ) -> Result<(), BackendError> {
        let (rows, columns) = (logits.rows as f32, logits.columns);
        stream.launch([labels], [logits.region, tally], move |[labels], [logits, tally]: [&mut [f32]; 2]| {
            // A launch has slices of one type; labels are as wide as floats.
            let labels: &[u32] = bytemuck::cast_slice(labels);
            for (row, &label) in logits.chunks_exact_mut(columns).zip(labels) {
                let (loss, is_correct) = softmax_row(row, label as usize, smoothing);
                tally[0] += loss;
                tally[1] += if is_correct { 1.0 } else { 0.0 };
                row.iter_mut().for_each(|value| *value /= rows);
            }
        })
    }

    fn adam(
        &self,
        stream: &HostStream,
        step: AdamStep,
        gradient: Region<'_, HostMemory>,
        values: RegionMut<'_, HostMemory>,
        [first, second]: [RegionMut<'_, HostMemory>; 2],
    ) -> Result<(), BackendError> {
        let AdamStep { rate, beta_1, beta_2, epsilon } = step;
        let writes = [values, first, second];
        stream.launch([gradient], writes, move |[gradient], [values, first, second]: [&mut [f32]; 3]| {
            let moments = first.iter_mut().zip(second);
            for ((value, (first, second)), gradient) in values.iter_mut().zip(moments).zip(gradient) {
                *first = beta_1 * *first + (1.0 - beta_1) * gradient;
                *second = beta_2 * *second + (1.0 - beta_2) * gradient * gradient;
                *value -= rate * *first / (second.sqrt() + epsilon);
            }
        })
    }
}

/// Turns a row of logits into the gradient of its loss. Answers the loss, and whether the largest logit is the label's.
fn softmax_row(row: &mut [f32], label: usize, smoothing: f32) -> (f32, bool) {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let is_correct = row[label] >= largest;
    let share = smoothing / row.len() as f32;
    let mut expected = (1.0 - smoothing) * (row[label] - largest);
    let mut sum = 0.0;
    for value in row.iter_mut() {
        // The largest exponent is 0, so that none overflows.
        let exponent = *value - largest;
        expected += share * exponent;
        *value = exponent.exp();
        sum += *value;
    }
    row.iter_mut().for_each(|value| *value = *value / sum - share);
    row[label] -= 1.0 - smoothing;
    (sum.ln() - expected, is_correct)
}

#[cfg(test)]
mod tests {
    use super::super::compute::Compute;
    use super::super::matrix::Matrix;
    use super::super::tally::Tally;
    use super::*;
    use vrampool::{Backend, Pool};

    type HostCompute = Compute<HostDevice, HostKernels>;

    /// A pool whose idle memory is full of NaN, which no result may show.
    fn compute() -> HostCompute {
        let device = HostDevice::new();
        let pool = Pool::builder(&device).max_cached_bytes(1 << 30).build().expect("a pool");
        let compute = Compute::new(&pool, HostKernels).expect("a stream");
        let filled = [1, 1, 1, 1, 4, 4, 4].map(|kib| {
            let nan = vec![f32::NAN; kib * 256];
            compute.upload(kib, 256, &nan).expect("memory")
        });
        drop(filled);
        compute
    }

    fn random(rng: &mut fastrand::Rng, len: usize) -> Vec<f32> {
        (0..len).map(|_| rng.f32() * 2.0 - 1.0).collect()
    }

    fn assert_close(found: &[f32], wanted: &[f32]) {
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found - wanted).abs() <= 1e-4 * wanted.abs().max(1.0), "{found} is not {wanted}");
        }
    }

    #[test]
    fn products_are_those_of_the_naive_loops() {
        let (compute, mut rng) = (compute(), fastrand::Rng::with_seed(1));
        for (rows, inner, columns) in [(1, 1, 1), (2, 3, 5), (13, 7, 10), (33, 20, 17)] {
            let (left, right) = (random(&mut rng, rows * inner), random(&mut rng, inner * columns));
            let mut wanted = vec![0.0; rows * columns];
            let mut left_transposed = vec![0.0; left.len()];
            let mut right_transposed = vec![0.0; right.len()];
            for k in 0..inner {
                for i in 0..rows {
                    left_transposed[k * rows + i] = left[i * inner + k];
                    for j in 0..columns {
                        right_transposed[j * inner + k] = right[k * columns + j];
                        wanted[i * columns + j] += left[i * inner + k] * right[k * columns + j];
                    }
                }
            }
            let matrix =
                |rows, columns, values: &[f32]| compute.upload(rows, columns, values).expect("memory");
            let view = |matrix| compute.view(matrix).expect("a view");
            let (plain_left, plain_right) = (matrix(rows, inner, &left), matrix(inner, columns, &right));
            let (other_left, other_right) =
                (matrix(inner, rows, &left_transposed), matrix(columns, inner, &right_transposed));
            for (left, right) in [
                (view(&plain_left), view(&plain_right)),
                (view(&other_left).transposed(), view(&plain_right)),
                (view(&plain_left), view(&other_right).transposed()),
            ] {
                let product = compute.multiply(left, right).expect("a product");
                assert_close(&compute.download(&product).expect("elements"), &wanted);
            }
        }
    }

    #[test]
    fn factors_that_do_not_fit_are_an_error() {
        let compute = compute();
        let (left, right) = (compute.zeroed(2, 3).expect("memory"), compute.zeroed(4, 5).expect("memory"));
        let product =
            compute.multiply(compute.view(&left).expect("a view"), compute.view(&right).expect("a view"));
        let error = compute.download(&product.expect("it fails later")).expect_err("3 is not 4");
        assert!(error.to_string().contains("not compatible"), "{error}");
    }

    #[test]
    fn bias_relu_and_sums() {
        let compute = compute();
        let read = |matrix: &Matrix<_>| compute.download(matrix).expect("elements");
        let bias = compute.upload(1, 3, &[1.0, -1.0, 0.0]).expect("memory");
        let before = [0.5, 0.5, -2.0, -3.0, 4.0, 0.0];
        let mut values = compute.upload(2, 3, &before).expect("memory");
        compute.add_bias(&bias, Activation::Identity, &mut values).expect("work");
        assert_eq!(read(&values), [1.5, -0.5, -2.0, -2.0, 3.0, 0.0]);
        assert_eq!(read(&compute.sum_rows(&values).expect("sums")), [-0.5, 2.5, -2.0]);
        let mut values = compute.upload(2, 3, &before).expect("memory");
        compute.add_bias(&bias, Activation::Relu, &mut values).expect("work");
        assert_eq!(read(&values), [1.5, 0.0, 0.0, 0.0, 3.0, 0.0]);
        let mut gradient = compute.upload(2, 3, &[7.0; 6]).expect("memory");
        compute.relu_backward(&values, &mut gradient).expect("work");
        assert_eq!(read(&gradient), [7.0, 0.0, 0.0, 0.0, 7.0, 0.0]);
    }

    #[test]
    fn softmax_cross_entropy_is_the_naive_one_and_huge_logits_do_not_overflow() {
        const SMOOTHING: f64 = 0.3;
        let device = HostDevice::new();
        let pool = Pool::builder(&device).build().expect("a pool");
        let stream = device.create_stream().expect("a stream");
        let compute = Compute::new(&pool, HostKernels).expect("a stream");
        let mut labels = pool.allocate(12, &stream).expect("memory");
        labels.write(&stream, bytemuck::cast_slice(&[2_u32, 0, 1])).expect("labels");
        let logits = [1.0_f32, 2.0, 3.0, 0.5, 0.25, 0.75, -200.0, 200.0, 0.0];
        let mut wanted = Vec::new();
        let mut losses = 0.0;
        for (row, label) in logits.chunks(3).zip([2, 0, 1]) {
            let exponents: Vec<f64> = row.iter().map(|&logit| f64::from(logit).exp()).collect();
            let sum: f64 = exponents.iter().sum();
            for (index, exponent) in exponents.iter().enumerate() {
                let is_label = f64::from(u8::from(index == label));
                let target = (1.0 - SMOOTHING) * is_label + SMOOTHING / 3.0;
                losses -= target * (exponent / sum).ln();
                wanted.push(((exponent / sum - target) / 3.0) as f32);
            }
        }
        let mut tally = Tally::new(&compute).expect("memory");
        let logits = compute.upload(3, 3, &logits).expect("memory");
        let gradient =
            compute.softmax_cross_entropy(&labels, SMOOTHING as f32, logits, &mut tally).expect("work");
        assert_close(&compute.download(&gradient).expect("elements"), &wanted);
        let outcome = tally.read(&compute).expect("an outcome");
        assert_close(&[outcome.loss, outcome.accuracy], &[losses as f32 / 3.0, 2.0 / 3.0]);
    }

    #[test]
    fn adam_is_the_papers() {
        let compute = compute();
        let step = AdamStep { rate: 0.1, beta_1: 0.9, beta_2: 0.99, epsilon: 1e-3 };
        let gradient = compute.upload(1, 2, &[2.0, -0.5]).expect("memory");
        let mut values = compute.upload(1, 2, &[1.0, 1.0]).expect("memory");
        let mut moments = [(); 2].map(|()| compute.zeroed(1, 2).expect("memory"));
        let (mut wanted, mut first, mut second) = ([1.0_f32; 2], [0.0_f32; 2], [0.0_f32; 2]);
        for _ in 0..3 {
            compute.adam(step, &gradient, &mut values, &mut moments).expect("work");
            for (index, gradient) in [2.0_f32, -0.5].into_iter().enumerate() {
                first[index] = 0.9 * first[index] + 0.1 * gradient;
                second[index] = 0.99 * second[index] + 0.01 * gradient.powi(2);
                wanted[index] -= 0.1 * first[index] / (second[index].sqrt() + 1e-3);
            }
        }
        assert_close(&compute.download(&values).expect("elements"), &wanted);
    }
}
