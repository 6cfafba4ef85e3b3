//! The native part of vrampool's Python package: the module `vrampool._native`.
//!
//! It has the calls that programs make most: `Pool.allocate`, and what frees a
//! `Block`. The package's classes in Python inherit from those here and have the other methods.
//! The C ABI is exported by the same file, so ctypes, PyTorch and this module use the same pools.
//!
//! A call that idle memory serves holds the interpreter's lock throughout; one that may wait releases it.

#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod block;
#[allow(unsafe_code, reason = "calls of Python that may unwind")]
mod call;
#[allow(unsafe_code, reason = "what C passes to callbacks")]
mod callbacks;
#[allow(unsafe_code, reason = "structures of DLPack, which C defines")]
mod dlpack;
mod failure;
#[allow(unsafe_code, reason = "instances of classes that inherit from one of this module")]
mod package;
mod pool;
mod scope;
mod size;

use pyo3::prelude::*;
// Keeps the C ABI's functions in this library.
pub use vrampool_c::*;

/// The parts of `vrampool` that are not written in Python.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::block::{Block, Export};
    #[pymodule_export]
    use super::callbacks::{Callbacks, SegmentCallbacks};
    #[pymodule_export]
    use super::dlpack::{Imported, export_dlpack};
    #[pymodule_export]
    use super::package::Package;
    #[pymodule_export]
    use super::pool::Pool;
    #[pymodule_export]
    use super::scope::{Around, Scope, assign, current};
    #[pymodule_export]
    use super::size::size;

    use pyo3::pyfunction;
    use pyo3::types::{PyModuleMethods as _, PyTuple};

    /// Names and help of a pool's statistics.
    #[pyfunction]
    fn figures_of_pools() -> Vec<(&'static str, String)> {
        super::figures::of_pools()
    }

    /// Names and help of the results of a sleep or a wake.
    #[pyfunction]
    fn figures_of_sleep() -> Vec<(&'static str, String)> {
        super::figures::of_sleep()
    }

    #[pymodule_init]
    fn init(module: &super::Bound<'_, super::PyModule>) -> super::PyResult<()> {
        module.add("ABI", super::vrampool_abi_version())?;
        module.add("OPTIONS", PyTuple::new(module.py(), super::keys())?)?;
        module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
        super::package::check_interpreter(module.py())
    }
}
