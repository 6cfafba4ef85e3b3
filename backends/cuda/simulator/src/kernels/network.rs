//! Kernels of the demonstration programs: a small network, and a sweep of oscillators.

use super::kernel::{Kernel, float, load, number, reads, store, writes};

pub(super) const KERNELS: [Kernel; 7] = [
    Kernel {
        name: "multiply",
        touches: |a| {
            let (rows, inner, columns) = (number(a, 7), number(a, 8), number(a, 9));
            let extent = |count: u64, stride: u64| count.saturating_sub(1) * stride;
            let left = extent(rows, number(a, 1)) + extent(inner, number(a, 2)) + 1;
            let right = extent(inner, number(a, 4)) + extent(columns, number(a, 5)) + 1;
            let is_empty = rows == 0 || inner == 0 || columns == 0;
            let bytes = |elements: u64| if is_empty { 0 } else { 4 * elements };
            vec![
                reads(number(a, 0), bytes(left)),
                reads(number(a, 3), bytes(right)),
                writes(number(a, 6), 4 * rows * columns),
            ]
        },
        run: |a| {
            let (rows, inner, columns) = (number(a, 7), number(a, 8), number(a, 9));
            for i in 0..rows {
                for j in 0..columns {
                    let mut sum = 0f32;
                    for k in 0..inner {
                        let left: f32 = load(number(a, 0), i * number(a, 1) + k * number(a, 2));
                        let right: f32 = load(number(a, 3), k * number(a, 4) + j * number(a, 5));
                        sum = left.mul_add(right, sum);
                    }
                    store(number(a, 6), i * columns + j, sum);
                }
            }
        },
    },
    Kernel {
        name: "add_bias",
        touches: |a| vec![reads(number(a, 0), 4 * number(a, 1)), writes(number(a, 3), 4 * number(a, 4))],
        run: |a| {
            let (columns, values) = (number(a, 1), number(a, 3));
            for i in 0..number(a, 4) {
                let sum = load::<f32>(values, i) + load::<f32>(number(a, 0), i % columns);
                store(values, i, sum.max(float(a, 2)));
            }
        },
    },
    Kernel {
        name: "relu_backward",
        touches: |a| vec![reads(number(a, 0), 4 * number(a, 2)), writes(number(a, 1), 4 * number(a, 2))],
        run: |a| {
            for i in 0..number(a, 2) {
                if load::<f32>(number(a, 0), i) <= 0.0 {
                    store(number(a, 1), i, 0f32);
                }
            }
        },
    },
    Kernel {
        name: "sum_rows",
        touches: |a| {
            vec![reads(number(a, 0), 4 * number(a, 1) * number(a, 3)), writes(number(a, 2), 4 * number(a, 3))]
        },
        run: |a| {
            let columns = number(a, 3);
            for j in 0..columns {
                let sum: f32 = (0..number(a, 1)).map(|i| load::<f32>(number(a, 0), i * columns + j)).sum();
                store(number(a, 2), j, sum);
            }
        },
    },
    Kernel {
        name: "softmax_cross_entropy",
        touches: |a| {
            let (rows, columns) = (number(a, 3), number(a, 4));
            vec![
                reads(number(a, 0), 4 * rows),
                writes(number(a, 2), 4 * rows * columns),
                writes(number(a, 5), 8),
            ]
        },
        run: softmax_cross_entropy,
    },
    Kernel {
        name: "adam",
        touches: |a| {
            let bytes = 4 * number(a, 8);
            let mut ranges = vec![reads(number(a, 4), bytes)];
            ranges.extend([5, 6, 7].map(|index| writes(number(a, index), bytes)));
            ranges
        },
        run: |a| {
            let (rate, beta_1, beta_2, epsilon) = (float(a, 0), float(a, 1), float(a, 2), float(a, 3));
            let [gradient, values, first, second] = [4, 5, 6, 7].map(|index| number(a, index));
            for i in 0..number(a, 8) {
                let g: f32 = load(gradient, i);
                let m = beta_1 * load::<f32>(first, i) + (1.0 - beta_1) * g;
                let v = beta_2 * load::<f32>(second, i) + (1.0 - beta_2) * g * g;
                store(first, i, m);
                store(second, i, v);
                store(values, i, load::<f32>(values, i) - rate * m / (v.sqrt() + epsilon));
            }
        },
    },
    Kernel {
        name: "van_der_pol",
        touches: |a| {
            let (runs, samples) = (number(a, 4), number(a, 5));
            vec![reads(number(a, 0), 12 * runs), writes(number(a, 3), 4 * runs * samples)]
        },
        run: van_der_pol,
    },
];

fn softmax_cross_entropy(a: &[u64]) {
    let (labels, smoothing, logits, tally) = (number(a, 0), float(a, 1), number(a, 2), number(a, 5));
    let (rows, columns) = (number(a, 3), number(a, 4));
    let share = smoothing / columns as f32;
    let (mut loss, mut right) = (0f32, 0f32);
    for i in 0..rows {
        let at = |j: u64| i * columns + j;
        let label = u64::from(load::<u32>(labels, i)).min(columns - 1);
        let largest = (0..columns).map(|j| load::<f32>(logits, at(j))).fold(f32::MIN, f32::max);
        let own: f32 = load(logits, at(label));
        right += f32::from(u8::from(own >= largest));
        let (mut sum, mut expected) = (0f32, (1.0 - smoothing) * (own - largest));
        for j in 0..columns {
            let exponent = load::<f32>(logits, at(j)) - largest;
            expected += share * exponent;
            store(logits, at(j), exponent.exp());
            sum += exponent.exp();
        }
        for j in 0..columns {
            let target = if j == label { 1.0 - smoothing } else { 0.0 };
            store(logits, at(j), (load::<f32>(logits, at(j)) / sum - share - target) / rows as f32);
        }
        loss += sum.ln() - expected;
    }
    store(tally, 0, load::<f32>(tally, 0) + loss);
    store(tally, 1, load::<f32>(tally, 1) + right);
}

fn van_der_pol(a: &[u64]) {
    let (parameters, step, steps, states) = (number(a, 0), float(a, 1), number(a, 2), number(a, 3));
    let (runs, samples) = (number(a, 4), number(a, 5));
    let acceleration = |mu: f32, x: f32, v: f32| mu * (1.0 - x * x) * v - x;
    for i in 0..runs {
        let [mu, mut x, mut v]: [f32; 3] = [0, 1, 2].map(|row| load(parameters, row * runs + i));
        for sample in 0..samples {
            for _ in 0..steps {
                let (a1, v1, x1) =
                    (acceleration(mu, x, v), v + step / 2.0 * acceleration(mu, x, v), x + step / 2.0 * v);
                let (a2, v2, x2) = (
                    acceleration(mu, x1, v1),
                    v + step / 2.0 * acceleration(mu, x1, v1),
                    x + step / 2.0 * v1,
                );
                let (a3, v3, x3) =
                    (acceleration(mu, x2, v2), v + step * acceleration(mu, x2, v2), x + step * v2);
                let a4 = acceleration(mu, x3, v3);
                x += step / 6.0 * (v + 2.0 * v1 + 2.0 * v2 + v3);
                v += step / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + a4);
            }
            store(states, sample * runs + i, x);
        }
    }
}
