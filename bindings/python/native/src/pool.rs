//! Pools: where blocks come from.

use crate::block::Block;
use crate::call::call;
use crate::failure;
use crate::package::Package;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyTuple};
use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_c::boundary::{Out, Text};
use vrampool_c::{
    Status, ready, vrampool_allocate, vrampool_allocate_tagged, vrampool_create, vrampool_destroy,
};

/// The native part of `vrampool.Pool`.
#[pyclass(frozen, subclass, module = "vrampool._native")]
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Its number in the C ABI; 0 before it is made.
    handle: AtomicU64,
    package: OnceLock<Py<Package>>,
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    /// Its number in the C ABI, which no other pool ever has.
    #[getter]
    fn handle(&self) -> u64 {
        // Relaxed, here and below: a thread that has the object has its number.
        self.handle.load(Ordering::Relaxed)
    }

    /// Makes the pool, by the text of its options.
    fn _create(&self, package: &Bound<'_, Package>, options: &[u8]) -> PyResult<()> {
        let options = CString::new(options)?;
        let (py, mut handle) = (package.py(), 0);
        let status = py.detach(|| vrampool_create(Text::from(&*options), Out::from(&mut handle)));
        if status != Status::OK {
            return Err(failure::of_status(py, status));
        }
        self._adopt(package, handle).inspect_err(|_| {
            let _ = py.detach(|| vrampool_destroy(handle));
        })
    }

    /// Makes this the pool of a number.
    fn _adopt(&self, package: &Bound<'_, Package>, handle: u64) -> PyResult<()> {
        let known = self.package.get_or_init(|| package.clone().unbind());
        let is_first = self.handle.compare_exchange(0, handle, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        match is_first && known.is(package) {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err("the pool was made already")),
        }
    }

    /// A block of memory, with undefined contents.
    ///
    /// Args:
    ///     bytes: its size: an integer, or text as in `"1GiB"`. 0 is allowed.
    ///     stream: the stream of the work that uses it: `None` for the default stream, or what `Stream.of` takes.
    ///
    /// Raises: `OutOfMemoryError` after idle memory was released and the device was asked again; `AsleepError` while the tag
    /// sleeps; `ClosedError`.
    #[pyo3(signature = (bytes, stream=None))]
    fn allocate<'py>(
        slf: &Bound<'py, Self>,
        bytes: &Bound<'py, PyAny>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Block>> {
        let package = slf.get().package()?;
        let bytes = match integer(bytes) {
            Some(bytes) => bytes,
            None => package.size(bytes)?,
        };
        let stream = match stream {
            None => 0,
            Some(stream) => match integer(stream) {
                Some(stream) => stream,
                None => package.stream(stream)?,
            },
        };
        let block = package.new_block(slf.py())?;
        Self::allocate_into(slf, package, bytes, stream, &block)?;
        Ok(block)
    }

    /// Allocates memory for a block that has none, which keeps an object from then on. Returns its address.
    #[pyo3(signature = (bytes, stream, block, keep=None))]
    fn _allocate_into(
        slf: &Bound<'_, Self>,
        bytes: u64,
        stream: usize,
        block: &Bound<'_, Block>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        if let Some(keep) = keep {
            block.get().keep(keep);
        }
        Self::allocate_into(slf, slf.get().package()?, bytes, stream, block)?;
        Ok(block.get().address())
    }
}

impl Pool {
    #[inline]
    fn package(&self) -> PyResult<&Package> {
        self.package
            .get()
            .map(Py::get)
            .ok_or_else(|| PyRuntimeError::new_err("the pool was not made: call __init__"))
    }

    #[inline]
    fn allocate_into(
        slf: &Bound<'_, Self>,
        package: &Package,
        bytes: u64,
        stream: usize,
        block: &Bound<'_, Block>,
    ) -> PyResult<()> {
        let (py, handle) = (slf.py(), slf.get().handle());
        let tag = package.tag(py, handle)?;
        let name = tag.as_ref().map(|tag| str::from_utf8(tag.as_bytes())).transpose();
        let name = name.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let ready = ready::allocate(handle, name, bytes, stream);
        let address = match ready {
            Some(address) => address,
            None => Self::allocate_waiting(slf, tag.as_ref(), bytes, stream)?,
        };
        block.get().begin(py, address, bytes, stream, handle)
    }

    /// Allocates without the interpreter's lock.
    #[cold]
    #[inline(never)]
    fn allocate_waiting(
        slf: &Bound<'_, Self>,
        tag: Option<&Bound<'_, PyBytes>>,
        bytes: u64,
        stream: usize,
    ) -> PyResult<*mut c_void> {
        let (py, handle) = (slf.py(), slf.get().handle());
        let tag = tag.map(|tag| CString::new(tag.as_bytes())).transpose()?;
        let tag = tag.as_deref();
        let (status, address) = py.detach(|| {
            let mut address = ptr::null_mut();
            let status = allocate(handle, tag, bytes, stream, &mut address);
            (status, address as usize)
        });
        match status {
            Status::OK => Ok(address as *mut c_void),
            status => Err(PyErr::from_value(call(&slf.getattr("_failure")?, (bytes, status.0))?)),
        }
    }
}

fn allocate(handle: u64, tag: Option<&CStr>, bytes: u64, stream: usize, address: &mut *mut c_void) -> Status {
    let (stream, address) = (stream as *mut c_void, Out::from(address));
    match tag {
        None => vrampool_allocate(handle, bytes, stream, address),
        Some(tag) => vrampool_allocate_tagged(handle, Text::from(tag), bytes, stream, address),
    }
}

/// The value of an integer that fits; `None` for anything else, which is no failure.
#[inline]
fn integer<'py, T: FromPyObject<'py, 'py>>(argument: &'py Bound<'py, PyAny>) -> Option<T> {
    argument.cast_exact::<PyInt>().ok()?.extract().ok()
}
