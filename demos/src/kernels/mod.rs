//! The kernels of `train` and `solve`: what a device must compute, and one implementation for each backend.
//!
//! [`Kernels`] is the interface for the commands, and `operations` has what they compute; `view` is a matrix as kernels
//! see it; `shapes` checks the sizes of operands once for all backends. `host` computes by closures; `launcher` makes a
//! launch of each operation, which `cuda`, `opencl` and `wgpu` enqueue.

#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "launches of the kernels beside it; every block is argued")]
mod cuda;
mod host;
#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
#[allow(unsafe_code, reason = "launches of the kernels beside it; every block is argued")]
mod launcher;
#[cfg(feature = "opencl")]
#[allow(unsafe_code, reason = "launches of the kernels beside it; every block is argued")]
mod opencl;
mod operations;
mod oscillator;
mod shapes;
#[cfg(test)]
mod tests;
mod view;
#[cfg(feature = "wgpu")]
#[allow(unsafe_code, reason = "its launch has a contract, as those of other drivers")]
mod wgpu;

#[cfg(feature = "cuda")]
pub(crate) use cuda::CudaKernels;
pub(crate) use host::HostKernels;
#[cfg(feature = "opencl")]
pub(crate) use opencl::OpenClKernels;
pub(crate) use operations::{Activation, AdamStep, Kernels, Operation};
pub(crate) use oscillator::State;
pub(crate) use view::{View, ViewMut};
#[cfg(feature = "wgpu")]
pub(crate) use wgpu::WgpuKernels;
