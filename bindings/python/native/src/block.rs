//! Blocks: memory that is freed once.

use crate::call::call;
use crate::failure;
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::prelude::*;
use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use vrampool_c::boundary::{Given, Place};
use vrampool_c::ready::{self, Freed};
use vrampool_c::{Status, vrampool_drop_at, vrampool_free_at};

/// The native part of `vrampool.Block`: an address that is freed with the last reference, and once.
///
/// The address is stored and taken away in one step each, inside native functions: no interrupt and no other
/// thread comes between. The other numbers are stored once, before other code knows the block.
///
/// While other libraries use the memory the address is in `exports` instead, where no call frees it.
#[pyclass(frozen, subclass, weakref, module = "vrampool._native")]
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Where it begins; null before it has memory, after it was freed, and while it is exported.
    place: AtomicPtr<c_void>,
    address: AtomicU64,
    requested: AtomicU64,
    stream: AtomicUsize,
    pool: AtomicU64,
    /// Whether it was ever exported.
    was_exported: AtomicBool,
    /// Locked by steps that run no Python code, in which no thread waits for the interpreter.
    exports: Mutex<Exports>,
    /// What exists until it is free.
    kept: OnceLock<Py<PyAny>>,
}

/// Uses of a block's memory by other libraries.
#[derive(Debug, Default)]
struct Exports {
    count: usize,
    /// Where the block begins, while there are any.
    address: AtomicPtr<c_void>,
}

/// One use of a block's memory: while it exists `free` is refused.
#[pyclass(frozen, module = "vrampool._native")]
#[derive(Debug)]
pub(crate) struct Export {
    block: Py<Block>,
}

impl Drop for Export {
    fn drop(&mut self) {
        self.block.get().end_export();
    }
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

    /// Keeps an object, the first one that it is given, until after it is freed with its last reference.
    pub(crate) fn keep(&self, object: Py<PyAny>) {
        let _ = self.kept.set(object);
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
        if !self.has_address() {
            return Err(self.refuse_free(py));
        }
        let status = py.detach(|| {
            let stream = stream.map(|stream| stream as *mut c_void);
            let stream = stream.as_ref().map_or_else(Given::null, Given::from);
            vrampool_free_at(Place::from(&self.place), stream)
        });
        match status {
            Status::OK => Ok(()),
            // Another thread freed or exported it meanwhile.
            Status::INVALID_POINTER if !self.has_address() => Err(self.refuse_free(py)),
            status => Err(failure::of_status(py, status)),
        }
    }

    /// Whether a call may take the address away.
    fn has_address(&self) -> bool {
        // Relaxed: only whether there is one.
        !self.place.load(Ordering::Relaxed).is_null()
    }

    /// The error of a block that has no address.
    #[cold]
    fn refuse_free(&self, py: Python<'_>) -> PyErr {
        let (requested, address) = (self.requested(), self.address());
        if self.exports().count > 0 {
            return PyBufferError::new_err(format!(
                "Block({requested} bytes at {address:#x}) is not freed: arrays of it exist; it is freed with the last of them"
            ));
        }
        failure::of_kind(py, "InvalidPointerError", format!("the block at {address:#x} was freed"))
    }

    /// Whether it has memory, where an export may begin or end meanwhile.
    #[cold]
    fn is_exported_or_live(&self) -> bool {
        let exports = self.exports();
        exports.count > 0 || self.has_address()
    }

    fn exports(&self) -> MutexGuard<'_, Exports> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the address to the exports, unless it is there. Returns false for a block that was freed.
    fn begin_export(&self) -> bool {
        let mut exports = self.exports();
        if exports.count == 0 {
            // In one step: of this and a call that frees the block one has the address.
            let address = self.place.swap(ptr::null_mut(), Ordering::AcqRel);
            if address.is_null() {
                return false;
            }
            *exports.address.get_mut() = address;
            // Relaxed: only a hint for a thread that finds no address, and locks then.
            self.was_exported.store(true, Ordering::Relaxed);
        }
        exports.count += 1;
        true
    }

    /// Moves the address back with the last export.
    fn end_export(&self) {
        let mut exports = self.exports();
        exports.count -= 1;
        if exports.count > 0 {
            return;
        }
        let address = mem::take(&mut exports.address);
        let restored = self.place.compare_exchange(
            ptr::null_mut(),
            address.load(Ordering::Relaxed),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        drop(exports);
        if restored.is_err() {
            // It was given other memory meanwhile: the exported memory has no owner but this.
            let _ = Python::try_attach(|py| py.detach(|| vrampool_drop_at(Place::from(&address))));
        }
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
    pub(crate) fn address(&self) -> u64 {
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
        self.has_address() || self.was_exported.load(Ordering::Relaxed) && self.is_exported_or_live()
    }

    /// Counts a use of its memory by another library: `free` is a `BufferError` while the answer exists.
    ///
    /// Raises: `InvalidPointerError` when it was freed.
    fn _export(slf: Bound<'_, Self>) -> PyResult<Export> {
        let this = slf.get();
        if !this.begin_export() {
            return Err(this.refuse_free(slf.py()));
        }
        Ok(Export { block: slf.unbind() })
    }

    /// Frees it, behind the work so far on the stream it was allocated for and on `stream`.
    ///
    /// Of several threads one frees it, and the others raise `InvalidPointerError`.
    ///
    /// Raises: `InvalidPointerError` when it was freed; `BufferError` while an array that `__dlpack__` made of it exists.
    #[pyo3(signature = (stream=None))]
    fn free(slf: &Bound<'_, Self>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(stream) = stream {
            let of = py.import("vrampool.stream")?.getattr("Stream")?.getattr("of")?;
            let stream = call(&of, (stream,))?;
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
        // Exports refer to the block, and are over.
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
