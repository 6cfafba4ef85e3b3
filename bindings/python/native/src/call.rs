//! Calls of Python from Rust.
//!
//! When the interpreter ends, Python before 3.14 ends each other thread that attaches to it by `pthread_exit`, which
//! unwinds its frames; frames of Rust would end the process. Such a thread waits here until the process ends, as Python's
//! threads do from 3.14 on, and as pyo3 lets threads wait that only attach.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::{c_int, c_void};
use std::{hint, mem, ptr, thread};

type Object = *mut ffi::PyObject;
type Plain = unsafe extern "C" fn(Object, Object, Object) -> Object;
type Unwinding = unsafe extern "C-unwind" fn(Object, Object, Object) -> Object;

/// Keeps the thread that drops it.
struct Stay;

impl Drop for Stay {
    fn drop(&mut self) {
        loop {
            thread::park();
        }
    }
}

/// Calls a function that may run Python code: every such call of this module is made here.
pub(crate) fn call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error: Into<PyErr>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let arguments = arguments.into_pyobject(py).map_err(Into::into)?;
    // The compiler must not see which function it is: pyo3 declares it as one that does not unwind, and the drop of
    // `stay` would go.
    // SAFETY: the same function with the same arguments; the new type says that it may unwind.
    let call = hint::black_box(unsafe { mem::transmute::<Plain, Unwinding>(ffi::PyObject_Call) });
    let stay = Stay;
    // SAFETY: two objects that live during the call, and no keywords. Where it unwinds, `stay` ends the unwinding.
    let returned = unsafe { call(function.as_ptr(), arguments.as_ptr(), ptr::null_mut()) };
    mem::forget(stay);
    // SAFETY: a new reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, returned) }
}

/// Raises an exception in the main thread as soon as that runs Python code: for interrupts in a function whose caller is C.
pub(crate) fn raise_later(py: Python<'_>, error: PyErr) {
    extern "C" fn raise(error: *mut c_void) -> c_int {
        // SAFETY: the box below, which is used once.
        let error = *unsafe { Box::from_raw(error.cast::<PyErr>()) };
        Python::attach(|py| error.restore(py));
        -1
    }
    let error = Box::into_raw(Box::new(error));
    // SAFETY: a function that is called once with the box, by a thread that is attached.
    if unsafe { ffi::Py_AddPendingCall(Some(raise), error.cast()) } != 0 {
        // SAFETY: the function is not called.
        unsafe { Box::from_raw(error) }.write_unraisable(py, None);
    }
}
