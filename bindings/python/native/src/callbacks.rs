//! Functions of Python that the C library calls during a call, and with segments.
//!
//! What they raise is kept or passed on by native code, so that an interrupt at any of their instructions reaches a caller.

use crate::call::{call, raise_later};
use crate::failure;
use crate::scope::is_interrupt;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::HashSet;
use std::ffi::{CString, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vrampool_c::boundary::Text;
use vrampool_c::{Chunk, Status, vrampool_segment_tag};

/// What a run returns whose exception is raised in place of a failure of the library.
const RAISED: Status = Status::INTERNAL;

/// The functions that one call of the C library calls: with each chunk's address, and with its progress.
///
/// After the first exception none is called any more.
#[pyclass(frozen, module = "vrampool._native")]
#[derive(Debug)]
pub(crate) struct Callbacks {
    work: Option<Py<PyAny>>,
    progress: Option<Py<PyAny>>,
    raised: Mutex<Option<PyErr>>,
}

#[pymethods]
impl Callbacks {
    #[new]
    #[pyo3(signature = (*, work=None, progress=None))]
    fn new(work: Option<Py<PyAny>>, progress: Option<Py<PyAny>>) -> Self {
        Self { work, progress, raised: Mutex::new(None) }
    }

    /// What C passes to the functions: valid while this object exists.
    #[getter]
    fn user(&self) -> usize {
        (&raw const *self).addr()
    }

    /// The address of C's `vrampool_chunk_callback`.
    #[getter]
    fn on_chunk(&self) -> usize {
        on_chunk as *const () as usize
    }

    /// The address of C's `vrampool_progress_callback`; 0 without a function for progress.
    #[getter]
    fn on_progress(&self) -> usize {
        if self.progress.is_some() { on_progress as *const () as usize } else { 0 }
    }

    /// The address of C's `vrampool_copy_callback`; 0 without a function for progress.
    #[getter]
    fn on_copy(&self) -> usize {
        if self.progress.is_some() { on_copy as *const () as usize } else { 0 }
    }

    /// Raises the first exception of a function, once.
    fn check(&self) -> PyResult<()> {
        let raised = lock(&self.raised).take();
        raised.map_or(Ok(()), Err)
    }
}

impl Callbacks {
    /// Calls a function, unless one raised before. Returns whether none did.
    fn run<'py>(&self, function: Option<&Py<PyAny>>, arguments: Bound<'py, PyTuple>) -> bool {
        if lock(&self.raised).is_some() {
            return false;
        }
        let Some(function) = function else { return true };
        match call(function.bind(arguments.py()), arguments) {
            Ok(_) => true,
            Err(error) => {
                lock(&self.raised).get_or_insert(error);
                false
            }
        }
    }
}

/// A function of C's that calls one of Python's; `None` when the interpreter ends.
fn attached<T, R>(user: *mut c_void, act: impl FnOnce(Python<'_>, &T) -> R) -> Option<R> {
    Python::try_attach(|py| {
        // SAFETY: the object's own address, which the package passes to C while it keeps the object.
        let own = unsafe { &*user.cast::<T>() };
        act(py, own)
    })
}

extern "C" fn on_chunk(user: *mut c_void, chunk: *const Chunk) -> Status {
    let went_well = attached(user, |py, own: &Callbacks| {
        PyTuple::new(py, [chunk.addr()]).is_ok_and(|arguments| own.run(own.work.as_ref(), arguments))
    });
    if went_well == Some(true) { Status::OK } else { RAISED }
}

extern "C" fn on_progress(user: *mut c_void, chunks: u64, runs: u64, of: u64) {
    report(user, &[chunks, runs, of]);
}

extern "C" fn on_copy(user: *mut c_void, copied: u64, of: u64) {
    report(user, &[copied, of]);
}

fn report(user: *mut c_void, numbers: &[u64]) {
    let _ = attached(user, |py, own: &Callbacks| {
        PyTuple::new(py, numbers).is_ok_and(|arguments| own.run(own.progress.as_ref(), arguments))
    });
}

/// The two functions that C calls with each segment, and the segments that they know.
#[pyclass(frozen, module = "vrampool._native")]
#[derive(Debug)]
pub(crate) struct SegmentCallbacks {
    /// Returns the tag of a segment by the first function, or `None`.
    tag: Py<PyAny>,
    /// Logs an exception, and returns the status for C.
    failed: Py<PyAny>,
    functions: Mutex<Option<(Py<PyAny>, Py<PyAny>)>>,
    live: Mutex<HashSet<u64>>,
}

type Handle = (c_int, u64, u64, u64);

#[pymethods]
impl SegmentCallbacks {
    #[new]
    fn new(tag: Py<PyAny>, failed: Py<PyAny>) -> Self {
        Self { tag, failed, functions: Mutex::default(), live: Mutex::default() }
    }

    /// What C passes to the functions: valid while this object exists.
    #[getter]
    fn user(&self) -> usize {
        (&raw const *self).addr()
    }

    /// The addresses of C's two `vrampool_segment_callback`.
    #[getter]
    fn addresses(&self) -> (usize, usize) {
        (on_malloc as *const () as usize, on_free as *const () as usize)
    }

    /// The functions.
    #[getter]
    fn functions(&self, py: Python<'_>) -> Option<(Py<PyAny>, Py<PyAny>)> {
        lock(&self.functions).as_ref().map(|(malloc, free)| (malloc.clone_ref(py), free.clone_ref(py)))
    }

    /// The number of segments that the functions know.
    #[getter]
    fn live(&self) -> usize {
        lock(&self.live).len()
    }

    /// Replaces the functions; without any, segments are forgotten.
    #[pyo3(signature = (functions=None))]
    fn set(&self, functions: Option<(Py<PyAny>, Py<PyAny>)>) {
        if functions.is_none() {
            lock(&self.live).clear();
        }
        let before = std::mem::replace(&mut *lock(&self.functions), functions);
        // Without the lock.
        drop(before);
    }
}

impl SegmentCallbacks {
    fn allocated(&self, py: Python<'_>, handle: Handle) -> PyResult<()> {
        let Some((function, _)) = self.functions(py) else { return Ok(()) };
        let (_, _, address, number) = handle;
        if let Some(tag) = call(self.tag.bind(py), (function.clone_ref(py),))?.extract::<Option<CString>>()? {
            let _ = vrampool_segment_tag(number, Text::from(&*tag));
        }
        // Before: an interrupt after the call changes nothing any more.
        lock(&self.live).insert(address);
        let called = call(function.bind(py), (handle,));
        called.map(drop).inspect_err(|_| {
            lock(&self.live).remove(&address);
        })
    }

    fn freed(&self, py: Python<'_>, handle: Handle) -> PyResult<()> {
        lock(&self.live).remove(&handle.2);
        let Some((_, function)) = self.functions(py) else { return Ok(()) };
        let returned = call(function.bind(py), (handle.2,))?;
        match returned.extract::<Handle>() {
            Ok(returned) if returned == handle => Ok(()),
            _ => {
                let text = format!(
                    "the free callback returned {} for the segment {handle:?}; the segment is freed",
                    returned.repr()?
                );
                Err(failure::of_kind(py, "MismatchError", text))
            }
        }
    }

    fn status(&self, py: Python<'_>, error: PyErr) -> Status {
        if is_interrupt(py, &error) {
            raise_later(py, error);
            return Status::INVALID_ARGUMENT;
        }
        match call(self.failed.bind(py), (error,)).and_then(|status| status.extract()) {
            Ok(status) => Status(status),
            Err(error) => {
                raise_later(py, error);
                Status::INVALID_ARGUMENT
            }
        }
    }
}

extern "C" fn on_malloc(user: *mut c_void, device: c_int, size: u64, address: u64, number: u64) -> Status {
    notify(user, |py, own| own.allocated(py, (device, size, address, number)))
}

extern "C" fn on_free(user: *mut c_void, device: c_int, size: u64, address: u64, number: u64) -> Status {
    notify(user, |py, own| own.freed(py, (device, size, address, number)))
}

fn notify(user: *mut c_void, act: impl FnOnce(Python<'_>, &SegmentCallbacks) -> PyResult<()>) -> Status {
    let notified = attached(user, |py, own: &SegmentCallbacks| match act(py, own) {
        Ok(()) => Status::OK,
        Err(error) => own.status(py, error),
    });
    notified.unwrap_or(Status::INVALID_ARGUMENT)
}

/// Locked by steps that run no Python code.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
