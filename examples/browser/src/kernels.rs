//! The kernels of `vrampool train`, for wgpu alone.

#![allow(dead_code, reason = "the program uses more of these files")]

#[path = "../../../demos/src/kernels/operations.rs"]
mod operations;
#[path = "../../../demos/src/kernels/oscillator.rs"]
mod oscillator;
#[path = "../../../demos/src/kernels/shapes.rs"]
mod shapes;
#[path = "../../../demos/src/kernels/view.rs"]
mod view;
#[path = "../../../demos/src/kernels/wgpu/mod.rs"]
mod wgpu;

pub(crate) use operations::{Activation, AdamStep, Kernels};
pub(crate) use oscillator::Oscillator;
pub(crate) use view::{View, ViewMut};
pub(crate) use wgpu::WgpuKernels;
