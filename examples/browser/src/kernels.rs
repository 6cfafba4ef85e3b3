//! The kernels of `vrampool train`, for wgpu alone.

#![allow(dead_code, reason = "the program uses more of these files")]

#[allow(unsafe_code, reason = "launches have a contract, as on other drivers")]
#[path = "../../../demos/src/kernels/launcher.rs"]
mod launcher;
#[path = "../../../demos/src/kernels/operations.rs"]
mod operations;
#[path = "../../../demos/src/kernels/shapes.rs"]
mod shapes;
#[path = "../../../demos/src/kernels/view.rs"]
mod view;
#[allow(unsafe_code, reason = "its launch has a contract, as those of other drivers")]
#[path = "../../../demos/src/kernels/wgpu/mod.rs"]
mod wgpu;

pub(crate) use operations::{Activation, AdamStep, Kernels, Operation};
pub(crate) use view::{View, ViewMut};
pub(crate) use wgpu::WgpuKernels;
