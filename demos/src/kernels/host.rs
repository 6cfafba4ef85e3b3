//! The kernels on the host device: closures on its streams.

use super::{AdamStep, Kernels, Operation, State, View, shapes};
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder};
use vrampool::BackendError;
use vrampool::host::{HostDevice, HostMemory, HostStream};

/// The host device's kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostKernels;

impl Kernels<HostDevice> for HostKernels {
    fn enqueue(&self, stream: &HostStream, operation: Operation<'_, HostMemory>) -> Result<(), BackendError> {
        match operation {
            Operation::Multiply(left, right, product) => {
                if shapes::product(&left, &right, &product)?.inner == 0 {
                    // Arrays without elements have no strides.
                    return stream
                        .launch([], [product.region], |[]: [&[f32]; 0], [product]| product.fill(0.0));
                }
                let layout = |view: &View<'_, HostMemory>| (view.rows, view.columns).strides(view.strides);
                let (left_layout, right_layout) = (layout(&left), layout(&right));
                let shape = (product.rows, product.columns);
                stream.launch(
                    [left.region, right.region],
                    [product.region],
                    move |[left, right], [product]| {
                        let left = ArrayView2::from_shape(left_layout, left);
                        let right = ArrayView2::from_shape(right_layout, right);
                        match (left, right, ArrayViewMut2::from_shape(shape, product)) {
                            (Ok(left), Ok(right), Ok(mut product)) => {
                                general_mat_mul(1.0_f32, &left, &right, 0.0, &mut product);
                            }
                            _ => unreachable!("a matrix is as large as its buffer"),
                        }
                    },
                )
            }
            Operation::AddBias(bias, activation, values) => {
                shapes::bias(&bias, &values.region)?;
                let floor = activation.floor();
                stream.launch([bias], [values.region], move |[bias], [values]: [&mut [f32]; 1]| {
                    for row in values.chunks_mut(bias.len()) {
                        for (value, bias) in row.iter_mut().zip(bias) {
                            *value = (*value + bias).max(floor);
                        }
                    }
                })
            }
            Operation::ReluBackward(outputs, gradient) => {
                shapes::elementwise(&outputs, &[&gradient])?;
                stream.launch([outputs], [gradient], |[outputs], [gradient]: [&mut [f32]; 1]| {
                    for (gradient, output) in gradient.iter_mut().zip(outputs) {
                        *gradient = if *output > 0.0 { *gradient } else { 0.0 };
                    }
                })
            }
            Operation::SumRows(values, sums) => {
                if shapes::sums(&values.region, &sums)?[1] == 0 {
                    return Ok(());
                }
                stream.launch([values.region], [sums], |[values], [sums]: [&mut [f32]; 1]| {
                    sums.fill(0.0);
                    for row in values.chunks_exact(sums.len()) {
                        for (sum, value) in sums.iter_mut().zip(row) {
                            *sum += value;
                        }
                    }
                })
            }
            Operation::Softmax(labels, smoothing, logits, tally) => {
                let [rows, columns] = shapes::logits(&labels, &logits.region, &tally)?;
                let (rows, columns) = (rows as f32, columns as usize);
                stream.launch(
                    [labels],
                    [logits.region, tally],
                    move |[labels], [logits, tally]: [&mut [f32]; 2]| {
                        // A launch has slices of one type; labels are as wide as floats.
                        let labels: &[u32] = bytemuck::cast_slice(labels);
                        for (row, &label) in logits.chunks_exact_mut(columns).zip(labels) {
                            let label = (label as usize).min(columns - 1);
                            let (loss, is_correct) = softmax_row(row, label, smoothing);
                            tally[0] += loss;
                            tally[1] += if is_correct { 1.0 } else { 0.0 };
                            row.iter_mut().for_each(|value| *value /= rows);
                        }
                    },
                )
            }
            Operation::Adam(step, gradient, values, [first, second]) => {
                shapes::elementwise(&gradient, &[&values, &first, &second])?;
                let AdamStep { rate, beta_1, beta_2, epsilon } = step;
                let writes = [values, first, second];
                stream.launch(
                    [gradient],
                    writes,
                    move |[gradient], [values, first, second]: [&mut [f32]; 3]| {
                        let moments = first.iter_mut().zip(second);
                        for ((value, (first, second)), gradient) in
                            values.iter_mut().zip(moments).zip(gradient)
                        {
                            *first = beta_1 * *first + (1.0 - beta_1) * gradient;
                            *second = beta_2 * *second + (1.0 - beta_2) * gradient * gradient;
                            *value -= rate * *first / (second.sqrt() + epsilon);
                        }
                    },
                )
            }
            Operation::Solve(parameters, step, steps, states) => {
                shapes::oscillators(&parameters, &states)?;
                stream.launch([parameters], [states], move |[parameters], [states]: [&mut [f32]; 1]| {
                    let runs = parameters.len() / 3;
                    for run in 0..runs {
                        let mut at =
                            State::new([parameters[run], parameters[runs + run], parameters[2 * runs + run]]);
                        for row in states.chunks_exact_mut(runs) {
                            (0..steps).for_each(|_| at.step(step));
                            row[run] = at.x;
                        }
                    }
                })
            }
        }
    }
}

/// Turns a row of logits into the gradient of its loss. Returns the loss, and whether the largest logit is
/// the label's.
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
