//! Blocks: memory that is freed once.

use crate::failure;
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use vrampool_c::boundary::{Given, Place};
use vrampool_c::ready::{self, Freed};
use vrampool_c::{Status, vrampool_drop_at, vrampool_free_at};

/// The native part of `vrampool.Block`: an address that is freed with the last reference, and once.
///
/// The address is stored and taken away in one step each, inside native functions: no interrupt and no other
/// thread comes between. The other numbers are stored once, before anybody else knows of the block.
#[pyclass(frozen, subclass, weakref, module = "vrampool._native")]
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Where it begins; null before it has memory and after it was freed.
    place: AtomicPtr<c_void>,
    address: AtomicU64,
    requested: AtomicU64,
    stream: AtomicUsize,
    pool: AtomicU64,
    /// Whether there ever were `exports`.
    has_exports: AtomicBool,
    /// Weak references to what other libraries have of it, in a list.
    exports: Mutex<Option<Py<PyList>>>,
    /// What exists until it is free.
    kept: OnceLock<Py<PyAny>>,
}

impl Block {
    /// Gives it memory. A block that has some is refused, and the memory freed.
    #[inline]
    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        address: *mut c_void,
        requested: u64,
        stream: usize,
        pool: u64,
    ) -> PyResult<()> {
        // Release: pairs with the acquire of the thread that frees it.
        if self
            .place
            .compare_exchange(ptr::null_mut(), address, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            return Err(Self::refuse(py, address));
        }
        self.address.store(address as u64, Ordering::Relaxed);
        self.requested.store(requested, Ordering::Relaxed);
        self.stream.store(stream, Ordering::Relaxed);
        self.pool.store(pool, Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    fn refuse(py: Python<'_>, address: *mut c_void) -> PyErr {
        let other = AtomicPtr::new(address);
        py.detach(|| vrampool_drop_at(Place::from(&other)));
        PyRuntimeError::new_err("the block has memory already")
    }

    /// Frees it behind the work on `stream`, too, without the interpreter's lock.
    #[cold]
    fn free_waiting(&self, py: Python<'_>, stream: Option<usize>) -> PyResult<()> {
        // Relaxed: only whether there is an address; it is taken below.
        if self.place.load(Ordering::Relaxed).is_null() {
            let text = format!("the block at {:#x} was freed", self.address());
            return Err(failure::of_kind(py, "InvalidPointerError", text));
        }
        let status = py.detach(|| {
            let stream = stream.map(|stream| stream as *mut c_void);
            let stream = stream.as_ref().map_or_else(Given::null, Given::from);
            vrampool_free_at(Place::from(&self.place), stream)
        });
        if status == Status::OK { Ok(()) } else { Err(failure::of_status(py, status)) }
    }

    #[inline]
    fn is_exported(&self, py: Python<'_>) -> PyResult<bool> {
        if self.has_exports.load(Ordering::Acquire) { self.look_at_exports(py) } else { Ok(false) }
    }

    #[cold]
    fn look_at_exports(&self, py: Python<'_>) -> PyResult<bool> {
        for export in self._exports(py).bind(py) {
            if !export.call0()?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[pymethods]
impl Block {
    /// A block without memory.
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// The device's address; on the host device the host's own.
    #[getter]
    fn address(&self) -> u64 {
        self.address.load(Ordering::Relaxed)
    }

    /// The number of bytes that were requested.
    #[getter]
    fn requested(&self) -> u64 {
        self.requested.load(Ordering::Relaxed)
    }

    /// The number of bytes that were requested.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.requested()
    }

    /// The handle of the stream it was allocated for.
    #[getter]
    fn stream(&self) -> usize {
        self.stream.load(Ordering::Relaxed)
    }

    /// The pool's handle.
    #[getter]
    fn pool(&self) -> u64 {
        self.pool.load(Ordering::Relaxed)
    }

    /// Whether it was not freed.
    #[getter]
    fn is_live(&self) -> bool {
        !self.place.load(Ordering::Relaxed).is_null()
    }

    /// Keeps an object, the first one that it is given, until after it is freed with its last reference.
    fn _keep(&self, object: Py<PyAny>) {
        let _ = self.kept.set(object);
    }

    #[getter]
    fn _exports(&self, py: Python<'_>) -> Py<PyList> {
        let exports = self.exports.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        exports.as_ref().map(|exports| exports.clone_ref(py)).unwrap_or_else(|| PyList::empty(py).unbind())
    }

    #[setter(_exports)]
    fn set_exports(&self, exports: Py<PyList>) {
        let mut known = self.exports.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = known.replace(exports);
        drop(known);
        // Without the lock: what is destroyed with it may come here.
        drop(before);
        // Release: pairs with the acquire of `is_exported`.
        self.has_exports.store(true, Ordering::Release);
    }

    /// Frees it, behind the work so far on the stream it was allocated for and on `stream`.
    ///
    /// Of several threads one frees it, and the others raise `InvalidPointerError`.
    ///
    /// Raises: `InvalidPointerError` when it was freed; `BufferError` while an array that `__dlpack__` made of it exists.
    #[pyo3(signature = (stream=None))]
    fn free(slf: &Bound<'_, Self>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if this.is_exported(py)? {
            let text = format!(
                "{} is not freed: arrays of it exist; it is freed with the last of them",
                slf.repr()?
            );
            return Err(PyBufferError::new_err(text));
        }
        if let Some(stream) = stream {
            let stream = py.import("vrampool.stream")?.getattr("Stream")?.call_method1("of", (stream,))?;
            return this.free_waiting(py, Some(stream.extract()?));
        }
        match ready::free_at(&this.place) {
            Freed::Done => Ok(()),
            Freed::Later(later) => {
                py.detach(|| drop(later));
                Ok(())
            }
            Freed::No => this.free_waiting(py, None),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        slf: &Bound<'_, Self>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if !slf.get().is_live() {
            return Ok(());
        }
        match Self::free(slf, None) {
            // One that another thread freed is fine; one that arrays use is freed with the last of them.
            Err(error)
                if error.is_instance_of::<PyBufferError>(slf.py())
                    || failure::is_of_kind(slf.py(), &error, "InvalidPointerError") =>
            {
                Ok(())
            }
            freed => freed,
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.place.get_mut().is_null() {
            return;
        }
        let freed = ready::free_at(&self.place);
        if let Freed::Done = freed {
            return;
        }
        let mut wait = Some(|| {
            drop(freed);
            vrampool_drop_at(Place::from(&self.place));
        });
        // The interpreter may be ending, and its lock not be there to be released.
        let _ = Python::try_attach(|py| py.detach(|| wait.take().into_iter().for_each(|wait| wait())));
        wait.into_iter().for_each(|wait| wait());
    }
}
