//! Laws for the kernels of every device: results equal those of naive loops wherever operands lie in memory,
//! and repeat to the bit; invalid operands are rejected.

use super::{Activation, AdamStep, Kernels, Operation, State, View, ViewMut};
use crate::device::Device;
use std::cell::Cell;
use std::error::Error;
use vrampool::backend::AllocationRequest;
#[cfg(feature = "opencl")]
use vrampool::backend::DeviceKind;
#[cfg(feature = "opencl")]
use vrampool::opencl::{self, OpenClDevice};
use vrampool::{Backend, BackendError, Placement, Region, RegionMut, any};
use vrampool_cli::on_device;
use vrampool_test_support::skip_backend;

const SPACE: u64 = 4 << 20;
/// The byte between operands.
const GUARD: u8 = 0xA5;

/// A test for each law, on every device, or on those of the backends that `VRAMPOOL_TEST_BACKENDS`, a list separated by
/// commas, names; on a processor of OpenCL also as if it were discrete, because the kernels of both differ.
/// `VRAMPOOL_REQUIRE` names backends that must be there.
macro_rules! laws {
    ($($test:ident: $law:ident,)*) => {$(
        #[test]
        fn $test() -> Result<(), Box<dyn Error>> {
            for name in names() {
                eprintln!("on {name}");
                let checked: Result<(), Box<dyn Error>> = on_device!(Some(&name.parse()?), |device| {
                    $law(&Setup::new(&device, &device.kernels()?)?);
                    Ok(())
                });
                checked?;
            }
            #[cfg(feature = "opencl")]
            for listed in opencl::list().unwrap_or_default().iter().filter(|_| is_wanted("opencl")) {
                let device = OpenClDevice::builder(listed.ordinal).kind(DeviceKind::Discrete).build()?;
                $law(&Setup::new(&device, &device.kernels()?)?);
            }
            Ok(())
        }
    )*};
}

laws! {
    products_are_those_of_the_naive_loops: products,
    bias_relu_sums_and_adam: elements,
    softmax_cross_entropy_is_the_naive_one_and_huge_logits_do_not_overflow: softmax,
    oscillators_go_the_same_way_everywhere: oscillators,
    operands_that_do_not_fit_are_refused: misfits,
}

fn names() -> Vec<String> {
    let devices = any::devices();
    devices.absent.iter().for_each(|absent| skip_backend(absent.backend, &absent.reason));
    let wanted = devices.there.into_iter().filter(|listed| is_wanted(listed.backend));
    wanted.map(|listed| listed.name).collect()
}

fn is_wanted(backend: &str) -> bool {
    let only = std::env::var("VRAMPOOL_TEST_BACKENDS").unwrap_or_default();
    only.is_empty() || only.split(',').any(|only| only == backend)
}

/// All operands in one memory, each a few words behind the last, as an arena may put them.
struct Setup<'a, D: Backend, K> {
    device: &'a D,
    kernels: &'a K,
    stream: D::Stream,
    memory: D::Memory,
    end: Cell<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u64,
    len: u64,
}

impl<'a, D: Device, K: Kernels<D>> Setup<'a, D, K> {
    fn new(device: &'a D, kernels: &'a K) -> Result<Self, BackendError> {
        let stream = device.create_stream()?;
        let memory = device.allocate(&AllocationRequest::new(SPACE, Placement::Device))?;
        device.fill(&stream, RegionMut::whole(&memory, &stream), GUARD)?;
        Ok(Self { device, kernels, stream, memory, end: Cell::new(4) })
    }

    fn enqueue(&self, operation: Operation<'_, D::Memory>) {
        self.kernels.enqueue(&self.stream, operation).expect("queued");
    }

    fn place(&self, len: u64) -> Place {
        let offset = self.end.get();
        self.end.set((offset + len).next_multiple_of(4) + 12);
        Place { offset, len }
    }

    fn put<T: bytemuck::Pod>(&self, values: &[T]) -> Place {
        let bytes = bytemuck::cast_slice(values);
        let place = self.place(bytes.len() as u64);
        self.device.upload(&self.stream, bytes, self.at_mut(place)).expect("a copy");
        place
    }

    fn at(&self, place: Place) -> Region<'_, D::Memory> {
        Region::new(&self.memory, place.offset, place.len, &self.stream).expect("a region")
    }

    fn at_mut(&self, place: Place) -> RegionMut<'_, D::Memory> {
        RegionMut::new(&self.memory, place.offset, place.len, &self.stream).expect("a region")
    }

    /// A row-major matrix.
    fn view(&self, rows: usize, columns: usize, place: Place) -> View<'_, D::Memory> {
        View { rows, columns, strides: (columns, 1), region: self.at(place) }
    }

    fn view_mut(&self, rows: usize, columns: usize, place: Place) -> ViewMut<'_, D::Memory> {
        ViewMut { rows, columns, region: self.at_mut(place) }
    }

    fn read(&self, place: Place) -> Vec<f32> {
        let mut values = vec![0.0; place.len as usize / 4];
        self.device
            .download(&self.stream, self.at(place), bytemuck::cast_slice_mut(&mut values))
            .expect("a copy");
        values
    }
}

/// Nothing was written outside of any operand.
impl<D: Backend, K> Drop for Setup<'_, D, K> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let mut all = vec![0; SPACE as usize];
            let whole = Region::whole(&self.memory, &self.stream);
            self.device.download(&self.stream, whole, &mut all).expect("a copy");
            assert_eq!(all[..4], [GUARD; 4]);
            assert!(all[self.end.get() as usize - 12..].iter().all(|&byte| byte == GUARD));
        }
    }
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

fn products<D: Device>(setup: &Setup<'_, D, impl Kernels<D>>) {
    let mut rng = fastrand::Rng::with_seed(1);
    for (rows, inner, columns) in [(1, 1, 1), (2, 3, 5), (13, 7, 10), (33, 20, 17), (64, 65, 256)] {
        let (left, right) = (random(&mut rng, rows * inner), random(&mut rng, inner * columns));
        let mut wanted = vec![0.0; rows * columns];
        let (mut left_turned, mut right_turned) = (vec![0.0; left.len()], vec![0.0; right.len()]);
        for k in 0..inner {
            for i in 0..rows {
                left_turned[k * rows + i] = left[i * inner + k];
                for j in 0..columns {
                    right_turned[j * inner + k] = right[k * columns + j];
                    wanted[i * columns + j] += left[i * inner + k] * right[k * columns + j];
                }
            }
        }
        let lefts = [setup.put(&left), setup.put(&left_turned)];
        let rights = [setup.put(&right), setup.put(&right_turned)];
        let plain_left = || setup.view(rows, inner, lefts[0]);
        let plain_right = || setup.view(inner, columns, rights[0]);
        // NaN, which no result may show.
        let product = setup.put(&vec![f32::NAN; rows * columns]);
        let multiply = |left, right| {
            setup.enqueue(Operation::Multiply(left, right, setup.view_mut(rows, columns, product)));
            let found = setup.read(product);
            assert_close(&found, &wanted);
            found
        };
        let once = multiply(plain_left(), plain_right());
        multiply(setup.view(inner, rows, lefts[1]).transposed(), plain_right());
        multiply(plain_left(), setup.view(columns, inner, rights[1]).transposed());
        assert!(multiply(plain_left(), plain_right()) == once, "not to the bit");
    }
    let nothing = setup.place(0);
    let product = setup.put(&[1.0_f32; 6]);
    let (left, right) = (setup.view(2, 0, nothing), setup.view(0, 3, nothing));
    setup.enqueue(Operation::Multiply(left, right, setup.view_mut(2, 3, product)));
    assert_eq!(setup.read(product), [0.0; 6]);
}

fn elements<D: Device>(setup: &Setup<'_, D, impl Kernels<D>>) {
    let bias = setup.put(&[1.0_f32, -1.0, 0.0]);
    let values = setup.put(&[0.5_f32, 0.5, -2.0, -3.0, 4.0, 0.0]);
    let sums = setup.put(&[f32::NAN; 3]);
    let add_bias = |activation| {
        setup.enqueue(Operation::AddBias(setup.at(bias), activation, setup.view_mut(2, 3, values)));
    };
    add_bias(Activation::Identity);
    setup.enqueue(Operation::SumRows(setup.view(2, 3, values), setup.at_mut(sums)));
    assert_eq!(setup.read(values), [1.5, -0.5, -2.0, -2.0, 3.0, 0.0]);
    assert_eq!(setup.read(sums), [-0.5, 2.5, -2.0]);
    add_bias(Activation::Relu);
    assert_eq!(setup.read(values), [2.5, 0.0, 0.0, 0.0, 2.0, 0.0]);
    let gradient = setup.put(&[7.0_f32; 6]);
    setup.enqueue(Operation::ReluBackward(setup.at(values), setup.at_mut(gradient)));
    assert_eq!(setup.read(gradient), [7.0, 0.0, 0.0, 0.0, 7.0, 0.0]);
    setup.enqueue(Operation::SumRows(setup.view(0, 3, setup.place(0)), setup.at_mut(sums)));
    assert_eq!(setup.read(sums), [0.0; 3]);

    let step = AdamStep { rate: 0.1, beta_1: 0.9, beta_2: 0.99, epsilon: 1e-3 };
    let (gradient, values) = (setup.put(&[2.0_f32, -0.5]), setup.put(&[1.0_f32; 2]));
    let moments = [setup.put(&[0.0_f32; 2]), setup.put(&[0.0_f32; 2])];
    let (mut wanted, mut first, mut second) = ([1.0_f32; 2], [0.0_f32; 2], [0.0_f32; 2]);
    for _ in 0..3 {
        let written = moments.map(|place| setup.at_mut(place));
        setup.enqueue(Operation::Adam(step, setup.at(gradient), setup.at_mut(values), written));
        for (index, gradient) in [2.0_f32, -0.5].into_iter().enumerate() {
            first[index] = 0.9 * first[index] + 0.1 * gradient;
            second[index] = 0.99 * second[index] + 0.01 * gradient.powi(2);
            wanted[index] -= 0.1 * first[index] / (second[index].sqrt() + 1e-3);
        }
    }
    assert_close(&setup.read(values), &wanted);
    assert_close(&setup.read(moments[0]), &first);
    assert_close(&setup.read(moments[1]), &second);
}

fn softmax<D: Device>(setup: &Setup<'_, D, impl Kernels<D>>) {
    let mut rng = fastrand::Rng::with_seed(3);
    for (rows, columns, smoothing, scale) in [
        (1_usize, 1_usize, 0.0_f32, 8.0_f32),
        (7, 10, 0.1, 8.0),
        (300, 10, 0.1, 8.0),
        (513, 3, 0.0, 8.0),
        (5, 3, 0.3, 400.0),
    ] {
        let logits: Vec<f32> = random(&mut rng, rows * columns).iter().map(|value| value * scale).collect();
        // Some labels are no column.
        let labels: Vec<u32> = (0..rows).map(|_| rng.u32(..columns as u32 + 1)).collect();
        let (mut gradient, mut loss, mut right) = (Vec::new(), 0.0, 0.0);
        for (row, &label) in logits.chunks(columns).zip(&labels) {
            let label = (label as usize).min(columns - 1);
            let largest = row.iter().copied().fold(f32::MIN, f32::max);
            let sum: f64 = row.iter().map(|value| f64::from(value - largest).exp()).sum();
            right += f32::from(row[label] >= largest);
            for (column, value) in row.iter().enumerate() {
                let smoothed = f64::from(smoothing) / columns as f64;
                let target = smoothed + if column == label { f64::from(1.0 - smoothing) } else { 0.0 };
                let exponent = f64::from(value - largest);
                gradient.push(((exponent.exp() / sum - target) / rows as f64) as f32);
                loss -= target * (exponent - sum.ln());
            }
        }
        let (labels, place, tally) = (setup.put(&labels), setup.put(&logits), setup.put(&[1.0_f32, 2.0]));
        let logits = setup.view_mut(rows, columns, place);
        setup.enqueue(Operation::Softmax(setup.at(labels), smoothing, logits, setup.at_mut(tally)));
        assert_close(&setup.read(place), &gradient);
        assert_close(&setup.read(tally), &[1.0 + loss as f32, 2.0 + right]);
    }
}

fn oscillators<D: Device>(setup: &Setup<'_, D, impl Kernels<D>>) {
    let numbers = [1.0_f32, 2.0, 0.5, -1.0, 0.0, 0.25];
    let (parameters, states) = (setup.put(&numbers), setup.put(&[f32::NAN; 6]));
    setup.enqueue(Operation::Solve(setup.at(parameters), 0.1, 3, setup.at_mut(states)));
    let found = setup.read(states);
    for run in 0..2 {
        let mut at = State::new([numbers[run], numbers[2 + run], numbers[4 + run]]);
        for sample in 0..3 {
            (0..3).for_each(|_| at.step(0.1));
            let found = found[2 * sample + run];
            assert!((found - at.x).abs() < 1e-5, "{found} is not {}", at.x);
        }
    }
}

fn misfits<D: Device>(setup: &Setup<'_, D, impl Kernels<D>>) {
    let Setup { device, stream, kernels, .. } = setup;
    let (small, large) = (setup.put(&[0.0_f32; 4]), setup.put(&[0.0_f32; 16]));
    let [second, third, pair] = [4, 4, 2].map(|len| setup.put(&vec![0.0_f32; len]));
    let other = device.create_stream().expect("a stream");
    let odd = setup.place(10);
    let nothing = || setup.at(setup.place(0));
    let factor = |rows, columns| setup.view(rows, columns, small);
    let product = |rows, columns| setup.view_mut(rows, columns, large);
    let far = View { strides: (usize::MAX, usize::MAX), ..factor(2, 2) };
    let refused_on = |stream: &D::Stream, what: &str, operation| {
        let answer = kernels.enqueue(stream, operation);
        assert!(matches!(answer, Err(BackendError::InvalidArgument { .. })), "{what}: {answer:?}");
        answer.expect_err(what).to_string()
    };
    let refused = |what: &str, operation| refused_on(stream, what, operation);
    let backward = |read, written| Operation::ReluBackward(setup.at(read), setup.at_mut(written));
    let text = refused("inner sizes", Operation::Multiply(factor(2, 2), factor(3, 1), product(4, 4)));
    assert!(text.contains("not compatible"), "{text}");
    refused("elements", Operation::Multiply(factor(4, 2), factor(2, 4), product(4, 4)));
    refused("a product", Operation::Multiply(factor(2, 2), factor(2, 2), product(4, 4)));
    refused("overlap", Operation::Multiply(factor(2, 2), factor(2, 2), setup.view_mut(2, 2, small)));
    refused("strides", Operation::Multiply(far, factor(2, 2), product(4, 4)));
    refused("no bias", Operation::AddBias(nothing(), Activation::Relu, product(4, 4)));
    refused("sizes", backward(small, large));
    refused_on(&other, "a stream", backward(small, second));
    refused("itself", backward(small, small));
    refused("half a word", backward(odd, odd));
    refused("sums", Operation::SumRows(factor(2, 2), setup.at_mut(small)));
    let classify = |labels, logits, tally| {
        Operation::Softmax(setup.at(labels), 0.1, setup.view_mut(4, 4, logits), setup.at_mut(tally))
    };
    refused("a tally", classify(small, large, second));
    refused("rows", classify(small, pair, second));
    refused("labels", classify(small, small, pair));
    refused("no labels", classify(setup.place(0), large, pair));
    let step = AdamStep { rate: 0.1, beta_1: 0.9, beta_2: 0.99, epsilon: 1e-3 };
    let adam = |values, first, last| {
        let written = [first, last].map(|place| setup.at_mut(place));
        Operation::Adam(step, setup.at(small), setup.at_mut(values), written)
    };
    refused("values", adam(large, second, third));
    refused("moments", adam(second, third, third));
    refused("a moment", adam(second, third, pair));
    // Two oscillators have no rows of five places, nor are five numbers any.
    let six = setup.put(&[0.0_f32; 6]);
    for (numbers, places) in [(24, 20), (20, 24), (8, 24), (0, 24)] {
        let (from, to) = (Place { len: numbers, ..six }, Place { len: places, ..large });
        refused("states", Operation::Solve(setup.at(from), 0.1, 3, setup.at_mut(to)));
    }
    device.synchronize(stream).expect("no fault");
}
