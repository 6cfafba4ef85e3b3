//! Kernels of the example `cudarc_training`: a line fitted by gradient descent.

use super::kernel::{Kernel, float, load, number, reads, store, writes};

pub(super) const KERNELS: [Kernel; 2] = [
    Kernel {
        name: "line_errors",
        touches: |a| {
            let bytes = 4 * number(a, 4);
            vec![
                reads(number(a, 0), bytes),
                reads(number(a, 1), bytes),
                reads(number(a, 2), 8),
                writes(number(a, 3), bytes),
            ]
        },
        run: |a| {
            let (slope, intercept) = (load::<f32>(number(a, 2), 0), load::<f32>(number(a, 2), 1));
            for index in 0..number(a, 4) {
                let predicted = slope.mul_add(load(number(a, 0), index), intercept);
                store(number(a, 3), index, predicted - load::<f32>(number(a, 1), index));
            }
        },
    },
    Kernel {
        name: "line_step",
        touches: |a| {
            let bytes = 4 * number(a, 4);
            vec![reads(number(a, 0), bytes), reads(number(a, 1), bytes), writes(number(a, 2), 8)]
        },
        run: |a| {
            let (rate, count) = (float(a, 3), number(a, 4));
            let (mut slope, mut intercept) = (0f32, 0f32);
            for index in 0..count {
                let error = load::<f32>(number(a, 1), index);
                slope = error.mul_add(load(number(a, 0), index), slope);
                intercept += error;
            }
            for (index, gradient) in [slope, intercept].into_iter().enumerate() {
                let weight = load::<f32>(number(a, 2), index as u64);
                store(number(a, 2), index as u64, weight - rate / count as f32 * gradient);
            }
        },
    },
];
