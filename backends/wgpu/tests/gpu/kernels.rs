//! The kernels that come with the backend compute what the naive loops do, wherever their operands lie.

use crate::require;
use std::cell::Cell;
use vrampool_wgpu::{
    Adam, Backend, BackendError, Factor, Kernels, Placement, Region, RegionMut, WgpuDevice, WgpuMemory,
    WgpuStream,
};

const SPACE: u64 = 4 << 20;
/// What lies between operands.
const GUARD: u8 = 0xA5;

/// All operands in one memory, each a few words behind the last, as an arena may put them.
struct Setup {
    device: WgpuDevice,
    stream: WgpuStream,
    kernels: Kernels,
    memory: WgpuMemory,
    end: Cell<u64>,
}

#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    len: u64,
}

impl Setup {
    fn new() -> Option<Self> {
        let device = require::device()?;
        let stream = device.create_stream().expect("a stream");
        let kernels = Kernels::load(&device).expect("kernels");
        let memory = device.allocate(SPACE, Placement::Device.into()).expect("memory");
        device.fill(&stream, RegionMut::whole(&memory, &stream), GUARD).expect("a fill");
        Some(Self { device, stream, kernels, memory, end: Cell::new(4) })
    }

    fn place(&self, len: u64) -> Place {
        let offset = self.end.get();
        self.end.set((offset + len).next_multiple_of(4) + 12);
        Place { offset, len }
    }

    fn put(&self, bytes: &[u8]) -> Place {
        let place = self.place(bytes.len() as u64);
        self.device.upload(&self.stream, bytes, self.at_mut(place)).expect("a copy");
        place
    }

    fn floats(&self, values: &[f32]) -> Place {
        self.put(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
    }

    fn words(&self, values: &[u32]) -> Place {
        self.put(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
    }

    fn at(&self, place: Place) -> Region<'_, WgpuMemory> {
        Region::new(&self.memory, place.offset, place.len, &self.stream).expect("a region")
    }

    fn at_mut(&self, place: Place) -> RegionMut<'_, WgpuMemory> {
        RegionMut::new(&self.memory, place.offset, place.len, &self.stream).expect("a region")
    }

    fn bytes(&self, place: Place) -> Vec<u8> {
        let mut bytes = vec![0; place.len as usize];
        self.device.download(&self.stream, self.at(place), &mut bytes).expect("a copy");
        bytes
    }

    fn read(&self, place: Place) -> Vec<f32> {
        let bytes = self.bytes(place);
        bytes.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().expect("4 bytes"))).collect()
    }
}

/// Nothing was written outside of any operand.
impl Drop for Setup {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let all = self.bytes(Place { offset: 0, len: SPACE });
            assert_eq!(all[..4], [GUARD; 4]);
            assert!(all[self.end.get() as usize - 8..].iter().all(|&byte| byte == GUARD));
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

#[test]
fn products_are_those_of_the_naive_loops() {
    let Some(setup) = Setup::new() else { return };
    let mut rng = fastrand::Rng::with_seed(1);
    for (rows, inner, columns) in [(1, 1, 1), (2, 3, 5), (13, 7, 10), (33, 20, 17), (64, 65, 256)] {
        let (left, right) = (random(&mut rng, rows * inner), random(&mut rng, inner * columns));
        let mut wanted = vec![0.0; rows * columns];
        let mut transposed = vec![0.0; left.len()];
        for i in 0..rows {
            for k in 0..inner {
                transposed[k * rows + i] = left[i * inner + k];
                for j in 0..columns {
                    wanted[i * columns + j] += left[i * inner + k] * right[k * columns + j];
                }
            }
        }
        let (plain, other) = (setup.floats(&left), setup.floats(&transposed));
        let (right, product) = (setup.floats(&right), setup.floats(&vec![f32::NAN; rows * columns]));
        let factor =
            |rows, columns, strides, place| Factor { rows, columns, strides, region: setup.at(place) };
        let right = factor(inner, columns, (columns, 1), right);
        for (place, strides) in [(plain, (inner, 1)), (other, (1, rows))] {
            let left = factor(rows, inner, strides, place);
            setup.kernels.multiply(&setup.stream, &left, &right, setup.at_mut(product)).expect("queued");
            assert_close(&setup.read(product), &wanted);
        }
        // Twice the same, to the bit.
        let once = setup.bytes(product);
        let left = factor(rows, inner, (inner, 1), plain);
        setup.kernels.multiply(&setup.stream, &left, &right, setup.at_mut(product)).expect("queued");
        assert!(setup.bytes(product) == once);
    }
    let empty = Factor { rows: 2, columns: 0, strides: (0, 1), region: setup.at(setup.place(0)) };
    let none = Factor { rows: 0, columns: 3, strides: (3, 1), region: setup.at(setup.place(0)) };
    let product = setup.floats(&[1.0; 6]);
    setup.kernels.multiply(&setup.stream, &empty, &none, setup.at_mut(product)).expect("queued");
    assert_eq!(setup.read(product), [0.0; 6]);
}

#[test]
fn bias_relu_sums_and_adam() {
    let Some(setup) = Setup::new() else { return };
    let Setup { stream, kernels, .. } = &setup;
    let (bias, values) = (setup.floats(&[1.0, -1.0, 0.0]), setup.floats(&[0.5, 0.5, -2.0, -3.0, 4.0, 0.0]));
    let sums = setup.floats(&[f32::NAN; 3]);
    kernels.add_bias(stream, setup.at(bias), f32::NEG_INFINITY, setup.at_mut(values)).expect("queued");
    kernels.sum_rows(stream, setup.at(values), setup.at_mut(sums)).expect("queued");
    assert_eq!(setup.read(values), [1.5, -0.5, -2.0, -2.0, 3.0, 0.0]);
    assert_eq!(setup.read(sums), [-0.5, 2.5, -2.0]);
    let gradient = setup.floats(&[7.0; 6]);
    kernels.relu_backward(stream, setup.at(values), setup.at_mut(gradient)).expect("queued");
    assert_eq!(setup.read(gradient), [7.0, 0.0, 0.0, 0.0, 7.0, 0.0]);
    kernels.add_bias(stream, setup.at(bias), 0.0, setup.at_mut(values)).expect("queued");
    assert_eq!(setup.read(values), [2.5, 0.0, 0.0, 0.0, 2.0, 0.0]);
    kernels.sum_rows(stream, setup.at(setup.place(0)), setup.at_mut(sums)).expect("queued");
    assert_eq!(setup.read(sums), [0.0; 3]);

    let step = Adam { rate: 0.1, beta_1: 0.9, beta_2: 0.99, epsilon: 1e-3 };
    let (gradient, values) = (setup.floats(&[2.0, -0.5]), setup.floats(&[1.0; 2]));
    let moments = [setup.floats(&[0.0; 2]), setup.floats(&[0.0; 2])];
    let (mut wanted, mut first, mut second) = ([1.0_f32; 2], [0.0_f32; 2], [0.0_f32; 2]);
    for _ in 0..3 {
        let written = moments.map(|place| setup.at_mut(place));
        kernels.adam(stream, step, setup.at(gradient), setup.at_mut(values), written).expect("queued");
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

#[test]
fn softmax_is_that_of_the_naive_loops() {
    let Some(setup) = Setup::new() else { return };
    let mut rng = fastrand::Rng::with_seed(3);
    for (rows, columns, smoothing) in [(1usize, 1usize, 0.0f32), (7, 10, 0.1), (300, 10, 0.1), (513, 3, 0.0)]
    {
        let logits: Vec<f32> = random(&mut rng, rows * columns).iter().map(|value| value * 8.0).collect();
        // Some labels are no column.
        let labels: Vec<u32> = (0..rows).map(|_| rng.u32(..columns as u32 + 1)).collect();
        let (mut gradient, mut loss, mut right) = (Vec::new(), 0.0, 0.0);
        for (row, &label) in logits.chunks(columns).zip(&labels) {
            let label = (label as usize).min(columns - 1);
            let largest = row.iter().copied().fold(f32::MIN, f32::max);
            let sum: f32 = row.iter().map(|value| (value - largest).exp()).sum();
            right += f32::from(row[label] >= largest);
            for (column, value) in row.iter().enumerate() {
                let wanted = smoothing / columns as f32 + if column == label { 1.0 - smoothing } else { 0.0 };
                let probability = (value - largest).exp() / sum;
                gradient.push((probability - wanted) / rows as f32);
                loss -= wanted * (value - largest - sum.ln());
            }
        }
        let (labels, place) = (setup.words(&labels), setup.floats(&logits));
        let tally = setup.floats(&[1.0, 2.0]);
        setup
            .kernels
            .softmax_cross_entropy(
                &setup.stream,
                setup.at(labels),
                smoothing,
                setup.at_mut(place),
                setup.at_mut(tally),
            )
            .expect("queued");
        assert_close(&setup.read(place), &gradient);
        assert_close(&setup.read(tally), &[1.0 + loss, 2.0 + right]);
    }
}

/// As the CUDA backend's kernel has it.
fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let word = |index: u64| {
        let x = seed.wrapping_add((index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (x ^ (x >> 32)) as u32
    };
    (0..bytes).map(|byte| word(byte / 4).to_le_bytes()[(byte % 4) as usize]).collect()
}

#[test]
fn a_pattern_is_found_whole_and_every_wrong_byte_is_counted() {
    let Some(setup) = Setup::new() else { return };
    let Setup { stream, kernels, .. } = &setup;
    for (bytes, seed) in
        [(1u64, 7u64), (3, 8), (4, 0), (5, u64::MAX), (4099, 1 << 63), (1 << 20, 0xFFFF_FFFF)]
    {
        let place = setup.place(bytes);
        kernels.write_pattern(stream, setup.at_mut(place), seed).expect("queued");
        let written = setup.bytes(place);
        assert!(written == pattern(seed, bytes), "{bytes}, {seed}");
        let count = setup.words(&[0, 0]);
        let mismatches = |seed| {
            setup.device.fill(stream, setup.at_mut(count), 0).expect("a fill");
            kernels.count_mismatches(stream, setup.at(place), seed, setup.at_mut(count)).expect("queued");
            u64::from_le_bytes(setup.bytes(count).try_into().expect("8 bytes"))
        };
        assert_eq!(mismatches(seed), 0, "{bytes}");
        let wrong = pattern(9, bytes).iter().zip(&written).filter(|(one, other)| one != other).count();
        assert_eq!(mismatches(9), wrong as u64, "{bytes}");
        // What lies behind the last byte, in its word, is as it was.
        let end = Place { offset: place.offset, len: (bytes + 8).next_multiple_of(4) };
        assert!(setup.bytes(end)[bytes as usize..][..8].iter().all(|&byte| byte == GUARD), "{bytes}");
    }
}

/// The count has 64 bits, and the device adds 32 at a time.
#[test]
fn a_count_is_carried() {
    let Some(setup) = Setup::new() else { return };
    let count = setup.words(&[u32::MAX - 3, 1]);
    let bytes = setup.put(&[0; 64]);
    let wrong = pattern(5, 64).iter().filter(|&&byte| byte != 0).count() as u64;
    setup.kernels.count_mismatches(&setup.stream, setup.at(bytes), 5, setup.at_mut(count)).expect("queued");
    let found = u64::from_le_bytes(setup.bytes(count).try_into().expect("8 bytes"));
    assert_eq!(found, (1 << 32) + u64::from(u32::MAX - 3) + wrong);
}

#[test]
fn more_dispatches_than_one_submission_has() {
    let Some(setup) = Setup::new() else { return };
    let (bias, values) = (setup.floats(&[1.0]), setup.floats(&[0.0; 5]));
    for _ in 0..1000 {
        setup.kernels.add_bias(&setup.stream, setup.at(bias), 0.0, setup.at_mut(values)).expect("queued");
    }
    assert_eq!(setup.read(values), [1000.0; 5]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(setup) = Setup::new() else { return };
    let Setup { device, stream, kernels, .. } = &setup;
    let (small, large) = (setup.floats(&[0.0; 4]), setup.floats(&[0.0; 16]));
    let other = device.create_stream().expect("a stream");
    let factor = |rows, columns| Factor { rows, columns, strides: (columns, 1), region: setup.at(small) };
    let far = Factor { rows: 2, columns: 2, strides: (usize::MAX, usize::MAX), region: setup.at(small) };
    let product = || setup.at_mut(large);
    let odd = Place { offset: small.offset + 1, len: 8 };
    let elsewhere = WgpuDevice::open(0).expect("a device");
    let foreign = elsewhere.create_stream().expect("a stream");
    for refused in [
        kernels.multiply(stream, &factor(2, 2), &factor(3, 1), product()),
        kernels.multiply(stream, &factor(4, 2), &factor(2, 4), product()),
        kernels.multiply(stream, &factor(2, 2), &factor(2, 2), product()),
        kernels.multiply(stream, &factor(2, 2), &factor(2, 2), setup.at_mut(small)),
        kernels.multiply(stream, &far, &factor(2, 2), product()),
        kernels.relu_backward(stream, setup.at(small), product()),
        kernels.relu_backward(&other, setup.at(small), setup.at_mut(small)),
        kernels.relu_backward(&foreign, setup.at(small), setup.at_mut(large)),
        kernels.softmax_cross_entropy(stream, setup.at(small), 0.1, product(), setup.at_mut(small)),
        kernels.count_mismatches(stream, setup.at(large), 0, setup.at_mut(small)),
        kernels.write_pattern(stream, setup.at_mut(odd), 0),
        kernels.add_bias(stream, setup.at(setup.place(0)), 0.0, product()),
    ] {
        let error = refused.expect_err("it does not fit");
        assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
    }
    device.synchronize(stream).expect("no fault");
}
