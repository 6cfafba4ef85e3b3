//! What the native classes need of the package's part in Python.

use crate::block::Block;
use crate::call::call;
use crate::scope::{innermost, tags_are_used};
use pyo3::exceptions::{PyImportError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

/// Refuses every interpreter of the process but the first that imports the module: what it keeps of the package
/// is that interpreter's. Python refuses them by itself from 3.12 on.
pub(crate) fn check_interpreter(_attached: Python<'_>) -> PyResult<()> {
    const NONE: i64 = -1;
    static FIRST: AtomicI64 = AtomicI64::new(NONE);
    // SAFETY: this thread is attached to an interpreter, whose state the call returns.
    let state = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the state is that of the interpreter that runs, and stays while it does.
    let id = unsafe { ffi::PyInterpreterState_GetID(state) };
    // Relaxed: only the number matters.
    match FIRST.compare_exchange(NONE, id, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if first != id => Err(PyImportError::new_err(
            "vrampool serves one interpreter of a process, and another one has imported it; use threads or processes",
        )),
        _ => Ok(()),
    }
}

/// The class of blocks, and functions in Python that the native classes call.
#[pyclass(frozen, module = "vrampool._native")]
#[derive(Debug)]
pub(crate) struct Package {
    block: Py<PyType>,
    new_block: ffi::newfunc,
    size: Py<PyAny>,
    stream: Py<PyAny>,
    tags: Py<PyAny>,
}

#[pymethods]
impl Package {
    /// `block` is a class that inherits from `Block` and has its `__new__`; `size` makes a number of bytes of an
    /// argument, and `stream` a stream's handle; `tags` is the variable of the scopes of tags.
    #[new]
    fn new(block: Bound<'_, PyType>, size: Py<PyAny>, stream: Py<PyAny>, tags: Py<PyAny>) -> PyResult<Self> {
        let (own, given) = (new_of(&block.py().get_type::<Block>()), new_of(&block));
        let new_block = own.filter(|own| given.is_some_and(|given| ptr::fn_addr_eq(given, *own)));
        match new_block {
            Some(new_block) if block.is_subclass_of::<Block>()? => {
                Ok(Self { block: block.unbind(), new_block, size, stream, tags })
            }
            _ => Err(PyTypeError::new_err("the class of blocks inherits from Block, and has its __new__")),
        }
    }
}

impl Package {
    /// A block without memory, of the package's class. Its `__init__`, which is for other callers, is not called.
    #[inline]
    pub(crate) fn new_block<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Block>> {
        let class = self.block.bind(py).as_type_ptr();
        // SAFETY: `new_block` is the `tp_new` of `Block`, and so of `class`, a subclass of it that is kept alive by
        // `self`. It takes a class, a tuple and null or a dict, and returns a new reference, or null with an
        // exception set.
        let made = unsafe { (self.new_block)(class, PyTuple::empty(py).as_ptr(), ptr::null_mut()) };
        // SAFETY: as above; this thread is attached to the interpreter.
        let made = unsafe { Bound::from_owned_ptr_or_err(py, made) }?;
        Ok(made.cast_into()?)
    }

    /// A number of bytes, of an argument that is none.
    #[cold]
    pub(crate) fn size(&self, argument: &Bound<'_, PyAny>) -> PyResult<u64> {
        call(self.size.bind(argument.py()), (argument,))?.extract()
    }

    /// The handle of a stream.
    pub(crate) fn stream(&self, argument: &Bound<'_, PyAny>) -> PyResult<usize> {
        call(self.stream.bind(argument.py()), (argument,))?.extract()
    }

    /// The tag of allocations from a pool, in the current context.
    #[inline]
    pub(crate) fn tag<'py>(&self, py: Python<'py>, pool: u64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if tags_are_used() { self.tag_now(py, pool) } else { Ok(None) }
    }

    #[cold]
    fn tag_now<'py>(&self, py: Python<'py>, pool: u64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let Some(opened) = innermost(py, &self.tags, Some(pool))? else { return Ok(None) };
        Ok(Some(opened.get().value.bind(py).cast::<PyBytes>()?.clone()))
    }
}

/// The function that makes instances of a class.
fn new_of(class: &Bound<'_, PyType>) -> Option<ffi::newfunc> {
    // SAFETY: a class, which every version of Python from 3.10 on takes here, whether it is made at run time or
    // not, and a slot whose value is such a function, or null.
    let slot = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_new) };
    // SAFETY: what is not null is a `newfunc`: that is this slot's type.
    (!slot.is_null()).then(|| unsafe { std::mem::transmute::<*mut std::ffi::c_void, ffi::newfunc>(slot) })
}
