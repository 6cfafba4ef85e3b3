//! The kernels of `vrampool train`, for wgpu alone.

#![allow(dead_code, reason = "the program uses more of these files")]

#[path = "../../../cli/src/kernels/operations.rs"]
mod operations;
#[path = "../../../cli/src/kernels/oscillator.rs"]
mod oscillator;
#[path = "../../../cli/src/kernels/shapes.rs"]
mod shapes;
#[path = "../../../cli/src/kernels/view.rs"]
mod view;
#[path = "../../../cli/src/kernels/wgpu/mod.rs"]
mod wgpu;

pub(crate) use operations::{Activation, AdamStep, Kernels};
pub(crate) use oscillator::Oscillator;
pub(crate) use view::{View, ViewMut};
pub(crate) use wgpu::WgpuKernels;
