//! The kernels that come with the backend compute what the naive loops do, and find every byte that is wrong.

use crate::gpu::{self, Count};
use vrampool::cuda::{Adam, CudaDevice, CudaMemory, CudaStream, Factor, Kernels};
use vrampool::{Backend, Placement, Region, RegionMut};

struct Setup {
    device: CudaDevice,
    stream: CudaStream,
    kernels: Kernels,
}

impl Setup {
    fn new() -> Option<Self> {
        let device = gpu::device()?;
        let stream = device.create_stream().expect("a stream");
        let kernels = Kernels::load(&device).expect("kernels");
        Some(Self { device, stream, kernels })
    }

    fn memory(&self, values: &[f32]) -> CudaMemory {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let memory = self.device.allocate(bytes.len() as u64, Placement::Device.into()).expect("memory");
        self.device.upload(&self.stream, &bytes, self.whole_mut(&memory)).expect("a copy");
        memory
    }

    fn whole<'a>(&self, memory: &'a CudaMemory) -> Region<'a, CudaMemory> {
        Region::whole(memory, &self.stream)
    }

    fn whole_mut<'a>(&self, memory: &'a CudaMemory) -> RegionMut<'a, CudaMemory> {
        RegionMut::whole(memory, &self.stream)
    }

    fn read(&self, memory: &CudaMemory) -> Vec<f32> {
        let mut bytes = vec![0; vrampool::Memory::len(memory) as usize];
        self.device.download(&self.stream, self.whole(memory), &mut bytes).expect("a copy");
        bytes
            .chunks_exact(4)
            .map(|value| f32::from_le_bytes([value[0], value[1], value[2], value[3]]))
            .collect()
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
        let (plain, other) = (setup.memory(&left), setup.memory(&transposed));
        let (right, product) = (setup.memory(&right), setup.memory(&vec![f32::NAN; rows * columns]));
        let right = Factor { rows: inner, columns, strides: (columns, 1), region: setup.whole(&right) };
        for (memory, strides) in [(&plain, (inner, 1)), (&other, (1, rows))] {
            let left = Factor { rows, columns: inner, strides, region: setup.whole(memory) };
            setup.kernels.multiply(&setup.stream, &left, &right, setup.whole_mut(&product)).expect("queued");
            assert_close(&setup.read(&product), &wanted);
        }
    }
}

#[test]
fn bias_relu_sums_and_adam() {
    let Some(setup) = Setup::new() else { return };
    let Setup { stream, kernels, .. } = &setup;
    let (bias, values) = (setup.memory(&[1.0, -1.0, 0.0]), setup.memory(&[0.5, 0.5, -2.0, -3.0, 4.0, 0.0]));
    let sums = setup.memory(&[f32::NAN; 3]);
    kernels
        .add_bias(stream, setup.whole(&bias), f32::NEG_INFINITY, setup.whole_mut(&values))
        .expect("queued");
    kernels.sum_rows(stream, setup.whole(&values), setup.whole_mut(&sums)).expect("queued");
    assert_eq!(setup.read(&values), [1.5, -0.5, -2.0, -2.0, 3.0, 0.0]);
    assert_eq!(setup.read(&sums), [-0.5, 2.5, -2.0]);
    let gradient = setup.memory(&[7.0; 6]);
    kernels.relu_backward(stream, setup.whole(&values), setup.whole_mut(&gradient)).expect("queued");
    assert_eq!(setup.read(&gradient), [7.0, 0.0, 0.0, 0.0, 7.0, 0.0]);

    let step = Adam { rate: 0.1, beta_1: 0.9, beta_2: 0.99, epsilon: 1e-3 };
    let (gradient, values) = (setup.memory(&[2.0, -0.5]), setup.memory(&[1.0; 2]));
    let moments = [setup.memory(&[0.0; 2]), setup.memory(&[0.0; 2])];
    let (mut wanted, mut first, mut second) = ([1.0_f32; 2], [0.0_f32; 2], [0.0_f32; 2]);
    for _ in 0..3 {
        let written = [0, 1].map(|nth| setup.whole_mut(&moments[nth]));
        kernels
            .adam(stream, step, setup.whole(&gradient), setup.whole_mut(&values), written)
            .expect("queued");
        for (index, gradient) in [2.0_f32, -0.5].into_iter().enumerate() {
            first[index] = 0.9 * first[index] + 0.1 * gradient;
            second[index] = 0.99 * second[index] + 0.01 * gradient.powi(2);
            wanted[index] -= 0.1 * first[index] / (second[index].sqrt() + 1e-3);
        }
    }
    assert_close(&setup.read(&values), &wanted);
}

#[test]
fn a_pattern_is_found_whole_and_every_wrong_byte_is_counted() {
    let Some(setup) = Setup::new() else { return };
    let Setup { device, stream, kernels } = &setup;
    for bytes in [1u64, 3, 4, 5, 4099, 1 << 20] {
        let memory = device.allocate(bytes, Placement::Device.into()).expect("memory");
        kernels.write_pattern(stream, setup.whole_mut(&memory), 7).expect("queued");
        let mismatches = |seed| {
            let count = Count::new(device, stream);
            kernels.count_mismatches(stream, setup.whole(&memory), seed, count.on(stream)).expect("queued");
            count.read(stream)
        };
        assert_eq!(mismatches(7), 0, "{bytes}");
        if bytes > 5 {
            assert!(mismatches(8) > bytes * 9 / 10, "{bytes}");
        }
        let mut written = vec![0; bytes as usize];
        device.download(stream, setup.whole(&memory), &mut written).expect("a copy");
        for place in [0, bytes / 2, bytes - 1] {
            let mut spoilt = written.clone();
            spoilt[place as usize] ^= 0x40;
            device.upload(stream, &spoilt, setup.whole_mut(&memory)).expect("a copy");
            assert_eq!(mismatches(7), 1, "{bytes}, {place}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(setup) = Setup::new() else { return };
    let Setup { device, stream, kernels } = &setup;
    let (small, large) = (setup.memory(&[0.0; 4]), setup.memory(&[0.0; 16]));
    let other = device.create_stream().expect("a stream");
    let factor = |rows, columns| Factor { rows, columns, strides: (columns, 1), region: setup.whole(&small) };
    let product = || setup.whole_mut(&large);
    for refused in [
        kernels.multiply(stream, &factor(2, 2), &factor(3, 1), product()),
        kernels.multiply(stream, &factor(4, 2), &factor(2, 4), product()),
        kernels.multiply(stream, &factor(2, 2), &factor(2, 2), product()),
        kernels.multiply(stream, &factor(2, 2), &factor(2, 2), setup.whole_mut(&small)),
        kernels.relu_backward(stream, setup.whole(&small), product()),
        kernels.relu_backward(&other, setup.whole(&small), setup.whole_mut(&small)),
        kernels.softmax_cross_entropy(stream, setup.whole(&small), 0.1, product(), setup.whole_mut(&small)),
        kernels.count_mismatches(stream, setup.whole(&large), 0, setup.whole_mut(&small)),
    ] {
        let error = refused.expect_err("it does not fit");
        assert!(matches!(error, vrampool::BackendError::InvalidArgument { .. }), "{error}");
    }
    device.synchronize(stream).expect("no fault");
}
