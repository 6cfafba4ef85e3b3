//! What a device must compute to train the network. One implementation a backend; the loop knows only this trait.

use super::matrix::{View, ViewMut};
use vrampool::{Backend, BackendError, Region, RegionMut};

/// What follows the bias of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    /// Nothing.
    Identity,
    /// Negative values become 0.
    Relu,
}

/// One step of Adam (D. Kingma, J. Ba, 2015), its corrections of the moments' bias already in the rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdamStep {
    pub(crate) rate: f32,
    /// The decay of the first moment.
    pub(crate) beta_1: f32,
    /// The decay of the second moment.
    pub(crate) beta_2: f32,
    pub(crate) epsilon: f32,
}

/// The kernels of a backend. Each enqueues its work on `stream` and returns; all numbers are 32-bit floats, but labels
/// are `u32`. An output that a kernel only writes may hold anything before, NaN included: its memory is recycled.
pub(crate) trait Kernels<B: Backend> {
    /// `product` = `left` · `right`. Either factor may be transposed.
    fn multiply(
        &self,
        stream: &B::Stream,
        left: View<'_, B::Memory>,
        right: View<'_, B::Memory>,
        product: ViewMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;

    /// Adds `bias` to each row of `values` and applies `activation`, in place.
    fn add_bias(
        &self,
        stream: &B::Stream,
        bias: Region<'_, B::Memory>,
        activation: Activation,
        values: ViewMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;

    /// Turns the gradient of ReLU's `outputs` into that of its inputs, in place: 0 where the output is 0.
    fn relu_backward(
        &self,
        stream: &B::Stream,
        outputs: Region<'_, B::Memory>,
        gradient: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;

    /// `sums` = the sum of the rows of `values`, which are not transposed.
    fn sum_rows(
        &self,
        stream: &B::Stream,
        values: View<'_, B::Memory>,
        sums: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;

    /// Cross-entropy of the softmax of each row of `logits` against its label, of whose certainty the share `smoothing`
    /// is spread over all columns (C. Szegedy et al., 2016). The logits become the gradient of the mean loss over the
    /// rows; the sum of the losses is added to `tally[0]`, and to `tally[1]` the number of rows whose largest logit is
    /// the label's.
    fn softmax_cross_entropy(
        &self,
        stream: &B::Stream,
        labels: Region<'_, B::Memory>,
        smoothing: f32,
        logits: ViewMut<'_, B::Memory>,
        tally: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;

    /// One step of Adam: updates both moments, and moves `values` against the gradient.
    fn adam(
        &self,
        stream: &B::Stream,
        step: AdamStep,
        gradient: Region<'_, B::Memory>,
        values: RegionMut<'_, B::Memory>,
        moments: [RegionMut<'_, B::Memory>; 2],
    ) -> Result<(), BackendError>;
}

/// Laws that every device's kernels keep, on every device that is there.
#[cfg(test)]
mod tests {
    use super::super::compute::Compute;
    use super::super::matrix::Matrix;
    use super::super::tally::Tally;
    use super::*;
    use crate::device::{self, Device};
    use std::error::Error;
    use vrampool::{Pool, any};

    #[derive(Debug, Clone, Copy)]
    enum Law {
        Products,
        Misfits,
        Elements,
        Softmax,
        Adam,
    }

    impl device::Run for Law {
        type Output = ();

        fn run<D: Device>(self, device: &D) -> Result<(), Box<dyn Error>> {
            let compute = compute(device, device.kernels()?);
            match self {
                Self::Products => products(&compute),
                Self::Misfits => misfits(&compute),
                Self::Elements => elements(&compute),
                Self::Softmax => softmax(&compute),
                Self::Adam => adam(&compute),
            }
            Ok(())
        }
    }

    fn on_each(law: Law) {
        for listed in any::devices().there {
            eprintln!("{law:?} on {}", listed.name);
            device::run(Some(&listed.name.parse().expect("a name")), law).expect("no fault");
        }
    }

    #[test]
    fn products_are_those_of_the_naive_loops() {
        on_each(Law::Products);
    }

    #[test]
    fn factors_that_do_not_fit_are_an_error() {
        on_each(Law::Misfits);
    }

    #[test]
    fn bias_relu_and_sums() {
        on_each(Law::Elements);
    }

    #[test]
    fn softmax_cross_entropy_is_the_naive_one_and_huge_logits_do_not_overflow() {
        on_each(Law::Softmax);
    }

    #[test]
    fn adam_is_the_papers() {
        on_each(Law::Adam);
    }

    /// A pool whose idle memory is full of NaN, which no result may show.
    fn compute<D: Device, K: Kernels<D>>(device: &D, kernels: K) -> Compute<D, K> {
        let pool = Pool::builder(device).max_cached_bytes(1 << 30).build().expect("a pool");
        let compute = Compute::new(&pool, kernels).expect("a stream");
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

    fn products<D: Device>(compute: &Compute<D, impl Kernels<D>>) {
        let mut rng = fastrand::Rng::with_seed(1);
        for (rows, inner, columns) in [(1, 1, 1), (2, 3, 5), (13, 7, 10), (33, 20, 17), (64, 65, 256)] {
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

    fn misfits<D: Device>(compute: &Compute<D, impl Kernels<D>>) {
        let (left, right) = (compute.zeroed(2, 3).expect("memory"), compute.zeroed(4, 5).expect("memory"));
        let product =
            compute.multiply(compute.view(&left).expect("a view"), compute.view(&right).expect("a view"));
        // Refused at once, or a failure of the stream.
        let error = product.and_then(|product| compute.download(&product)).expect_err("3 is not 4");
        assert!(error.to_string().contains("not compatible"), "{error}");
    }

    fn elements<D: Device>(compute: &Compute<D, impl Kernels<D>>) {
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

    fn softmax<D: Device>(compute: &Compute<D, impl Kernels<D>>) {
        const SMOOTHING: f64 = 0.3;
        let (pool, stream) = (compute.pool(), compute.stream());
        let mut labels = pool.allocate(12, stream).expect("memory");
        labels.write(stream, bytemuck::cast_slice(&[2_u32, 0, 1])).expect("labels");
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
        let mut tally = Tally::new(compute).expect("memory");
        let logits = compute.upload(3, 3, &logits).expect("memory");
        let gradient =
            compute.softmax_cross_entropy(&labels, SMOOTHING as f32, logits, &mut tally).expect("work");
        assert_close(&compute.download(&gradient).expect("elements"), &wanted);
        let outcome = tally.read(compute).expect("an outcome");
        assert_close(&[outcome.loss, outcome.accuracy], &[losses as f32 / 3.0, 2.0 / 3.0]);
    }

    fn adam<D: Device>(compute: &Compute<D, impl Kernels<D>>) {
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
