//! The kernels that come with the crate compute what the naive loops do, on regions anywhere, and repeat it to the bit.

use crate::require;
use std::ops::Range;
use vrampool_opencl::{
    Adam, Backend, BackendError, DeviceKind, Factor, Kernels, OpenClDevice, OpenClMemory, OpenClStream,
    Placement, Region, RegionMut,
};

/// Where in its memory a region of values begins, bytes, so that an offset that is forgotten is seen.
const BEFORE: u64 = 24;

struct Setup {
    device: OpenClDevice,
    stream: OpenClStream,
    kernels: Kernels,
}

/// Values in the middle of a memory.
struct Values {
    memory: OpenClMemory,
    bytes: u64,
    stream: OpenClStream,
}

impl Values {
    fn region(&self) -> Region<'_, OpenClMemory> {
        self.region_mut().as_region()
    }

    fn region_mut(&self) -> RegionMut<'_, OpenClMemory> {
        RegionMut::new(&self.memory, BEFORE, self.bytes, &self.stream).expect("a region")
    }
}

/// Every device, as it is and as if it were discrete: a processor multiplies in a way of its own.
fn setups() -> Vec<Setup> {
    let setup = |device: OpenClDevice| Setup {
        stream: device.create_stream().expect("a stream"),
        kernels: Kernels::load(&device).expect("kernels"),
        device,
    };
    let discrete = |device: &OpenClDevice| {
        let builder = OpenClDevice::builder(device.listed().ordinal).kind(DeviceKind::Discrete);
        builder.build().expect("a device")
    };
    require::devices().into_iter().flat_map(|device| [discrete(&device), device]).map(setup).collect()
}

impl Setup {
    fn bytes(&self, bytes: &[u8]) -> Values {
        let len = bytes.len() as u64;
        let memory = self.device.allocate(BEFORE + len + 8, Placement::Device.into()).expect("memory");
        self.device.fill(&self.stream, RegionMut::whole(&memory, &self.stream), 0xA5).expect("a fill");
        let values = Values { memory, bytes: len, stream: self.stream.clone() };
        self.device.upload(&self.stream, bytes, values.region_mut()).expect("an upload");
        values
    }

    fn values(&self, values: &[f32]) -> Values {
        self.bytes(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
    }

    /// What is around the values is as it was.
    fn read_bytes(&self, values: &Values) -> Vec<u8> {
        let mut bytes = crate::read(&self.device, &self.stream, &values.memory);
        let inside: Range<usize> = BEFORE as usize..(BEFORE + values.bytes) as usize;
        assert!(bytes[..inside.start].iter().chain(&bytes[inside.end..]).all(|&byte| byte == 0xA5));
        bytes.drain(inside).collect()
    }

    fn read(&self, values: &Values) -> Vec<f32> {
        let bytes = self.read_bytes(values);
        bytes.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().expect("four"))).collect()
    }
}

/// From -1 to 1.
fn random(seed: &mut u64, len: usize) -> Vec<f32> {
    let mut next = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn assert_close(found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() <= 1e-4 * wanted.abs().max(1.0), "{found} is not {wanted}");
    }
}

#[test]
fn products_are_those_of_the_naive_loops() {
    for setup in setups() {
        let mut seed = 1;
        for (rows, inner, columns) in [(1, 1, 1), (2, 3, 5), (13, 7, 10), (33, 20, 17), (64, 65, 256)] {
            let (left, right) = (random(&mut seed, rows * inner), random(&mut seed, inner * columns));
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
            let (plain, other) = (setup.values(&left), setup.values(&transposed));
            let (right, product) = (setup.values(&right), setup.values(&vec![f32::NAN; rows * columns]));
            let right = Factor { rows: inner, columns, strides: (columns, 1), region: right.region() };
            let mut before: Option<Vec<f32>> = None;
            for (memory, strides) in [(&plain, (inner, 1)), (&other, (1, rows)), (&plain, (inner, 1))] {
                let left = Factor { rows, columns: inner, strides, region: memory.region() };
                let product_at = product.region_mut();
                setup.kernels.multiply(&setup.stream, &left, &right, product_at).expect("queued");
                let found = setup.read(&product);
                assert_close(&found, &wanted);
                assert!(before.is_none_or(|before| before == found), "not to the bit");
                before = Some(found);
            }
        }
    }
}

#[test]
fn bias_relu_sums_and_adam() {
    for setup in setups() {
        let Setup { stream, kernels, .. } = &setup;
        let bias = setup.values(&[1.0, -1.0, 0.0]);
        let values = setup.values(&[0.5, 0.5, -2.0, -3.0, 4.0, 0.0]);
        let sums = setup.values(&[f32::NAN; 3]);
        kernels.add_bias(stream, bias.region(), f32::NEG_INFINITY, values.region_mut()).expect("queued");
        kernels.sum_rows(stream, values.region(), sums.region_mut()).expect("queued");
        assert_eq!(setup.read(&values), [1.5, -0.5, -2.0, -2.0, 3.0, 0.0]);
        assert_eq!(setup.read(&sums), [-0.5, 2.5, -2.0]);
        let gradient = setup.values(&[7.0; 6]);
        kernels.relu_backward(stream, values.region(), gradient.region_mut()).expect("queued");
        assert_eq!(setup.read(&gradient), [7.0, 0.0, 0.0, 0.0, 7.0, 0.0]);
        kernels.add_bias(stream, bias.region(), 0.0, values.region_mut()).expect("queued");
        assert_eq!(setup.read(&values), [2.5, 0.0, 0.0, 0.0, 2.0, 0.0]);

        let step = Adam { rate: 0.1, beta_1: 0.9, beta_2: 0.99, epsilon: 1e-3 };
        let (gradient, values) = (setup.values(&[2.0, -0.5]), setup.values(&[1.0; 2]));
        let moments = [setup.values(&[0.0; 2]), setup.values(&[0.0; 2])];
        let (mut wanted, mut first, mut second) = ([1.0_f32; 2], [0.0_f32; 2], [0.0_f32; 2]);
        for _ in 0..3 {
            let written = [0, 1].map(|nth: usize| moments[nth].region_mut());
            kernels.adam(stream, step, gradient.region(), values.region_mut(), written).expect("queued");
            for (index, gradient) in [2.0_f32, -0.5].into_iter().enumerate() {
                first[index] = 0.9 * first[index] + 0.1 * gradient;
                second[index] = 0.99 * second[index] + 0.01 * gradient.powi(2);
                wanted[index] -= 0.1 * first[index] / (second[index].sqrt() + 1e-3);
            }
        }
        assert_close(&setup.read(&values), &wanted);
    }
}

#[test]
fn the_loss_and_its_gradient_are_those_of_the_naive_loops() {
    const SMOOTHING: f32 = 0.1;
    for setup in setups() {
        let mut seed = 2;
        for (rows, columns) in [(1, 2), (10, 10), (300, 7)] {
            let logits = random(&mut seed, rows * columns);
            // One label is no column, and counts as the last.
            let labels: Vec<u32> =
                (0..rows).map(|i| if i == 3 { 99 } else { (i * 7 % columns) as u32 }).collect();
            let (mut loss, mut right, mut wanted) = (0.0, 0.0, Vec::new());
            for (row, &label) in logits.chunks(columns).zip(&labels) {
                let label = (label as usize).min(columns - 1);
                let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f32 = row.iter().map(|logit| (logit - largest).exp()).sum();
                right += f32::from(u8::from(row[label] >= largest));
                for (j, logit) in row.iter().enumerate() {
                    let hit = if j == label { 1.0 - SMOOTHING } else { 0.0 };
                    let target = SMOOTHING / columns as f32 + hit;
                    loss -= target * (logit - largest - sum.ln());
                    wanted.push(((logit - largest).exp() / sum - target) / rows as f32);
                }
            }
            let labels =
                setup.bytes(&labels.iter().flat_map(|label| label.to_le_bytes()).collect::<Vec<_>>());
            let tally = setup.values(&[5.0, 6.0]);
            let logits = setup.values(&logits);
            setup
                .kernels
                .softmax_cross_entropy(
                    &setup.stream,
                    labels.region(),
                    SMOOTHING,
                    logits.region_mut(),
                    tally.region_mut(),
                )
                .expect("queued");
            assert_close(&setup.read(&logits), &wanted);
            assert_close(&setup.read(&tally), &[5.0 + loss, 6.0 + right]);
        }
    }
}

#[test]
fn a_pattern_is_found_whole_and_every_wrong_byte_is_counted() {
    for setup in setups() {
        let Setup { device, stream, kernels } = &setup;
        for bytes in [1usize, 3, 4, 5, 4099, 1 << 20] {
            let values = setup.bytes(&vec![0; bytes]);
            kernels.write_pattern(stream, values.region_mut(), 7).expect("queued");
            let mismatches = |seed, before: u64| {
                let count = setup.bytes(&before.to_ne_bytes());
                kernels.count_mismatches(stream, values.region(), seed, count.region_mut()).expect("queued");
                let bytes = setup.read_bytes(&count);
                u64::from_ne_bytes(bytes.try_into().expect("eight"))
            };
            assert_eq!(mismatches(7, 0), 0, "{bytes}");
            if bytes > 5 {
                let wrong = mismatches(8, 0);
                assert!(wrong > bytes as u64 * 9 / 10, "{bytes}");
                // It is a sum of 64 bits, made of additions of 32.
                let before = u64::from(u32::MAX) - 3;
                assert_eq!(mismatches(8, before), before + wrong);
            }
            let written = setup.read_bytes(&values);
            for place in [0, bytes / 2, bytes - 1] {
                let mut spoilt = written.clone();
                spoilt[place] ^= 0x40;
                device.upload(stream, &spoilt, values.region_mut()).expect("an upload");
                assert_eq!(mismatches(7, 0), 1, "{bytes}, {place}");
            }
        }
    }
}

#[test]
fn threads_share_kernels() {
    for setup in setups() {
        let Setup { device, kernels, .. } = &setup;
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let stream = device.create_stream().expect("a stream");
                    for round in 0..50 {
                        let bytes = 64 * (thread + 1);
                        let memory = device.allocate(bytes, Placement::Device.into()).expect("memory");
                        let count = device.allocate(8, Placement::Device.into()).expect("memory");
                        device.fill(&stream, RegionMut::whole(&count, &stream), 0).expect("a fill");
                        let seed = thread * 1000 + round;
                        let whole = || RegionMut::whole(&memory, &stream);
                        kernels.write_pattern(&stream, whole(), seed).expect("queued");
                        let counted = RegionMut::whole(&count, &stream);
                        kernels
                            .count_mismatches(&stream, whole().as_region(), seed, counted)
                            .expect("queued");
                        let wrong = crate::read(device, &stream, &count);
                        assert_eq!(wrong, [0; 8], "another thread's arguments");
                    }
                });
            }
        });
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    for setup in setups() {
        let Setup { device, stream, kernels } = &setup;
        let (small, large) = (setup.values(&[0.0; 4]), setup.values(&[0.0; 16]));
        let other = device.create_stream().expect("a stream");
        let factor = |rows, columns| Factor { rows, columns, strides: (columns, 1), region: small.region() };
        let product = || large.region_mut();
        let (odd, second) = (setup.bytes(&[0; 9]), setup.values(&[0.0; 4]));
        let at_one = odd.region_mut().slice(1..).expect("a region");
        for refused in [
            kernels.multiply(stream, &factor(2, 2), &factor(3, 1), product()),
            kernels.multiply(stream, &factor(4, 2), &factor(2, 4), product()),
            kernels.multiply(stream, &factor(2, 2), &factor(2, 2), product()),
            kernels.multiply(stream, &factor(2, 2), &factor(2, 2), small.region_mut()),
            kernels.add_bias(stream, small.region().slice(0..0).expect("a region"), 0.0, product()),
            kernels.relu_backward(stream, small.region(), product()),
            kernels.relu_backward(&other, small.region(), second.region_mut()),
            kernels.softmax_cross_entropy(stream, small.region(), 0.1, product(), small.region_mut()),
            kernels.write_pattern(stream, at_one, 0),
            kernels.count_mismatches(stream, large.region(), 0, small.region_mut()),
        ] {
            let error = refused.expect_err("it does not fit");
            assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
        }
        device.synchronize(stream).expect("no fault");
    }
}
