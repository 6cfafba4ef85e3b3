//! Values that a context has within scopes: tags.
//!
//! A scope belongs to an object, not to the thread or the context that began it: it ends with `__exit__`, wherever that is
//! called, or with the object's last reference. Both steps are native, so that an interrupt comes before or after them. Copies of
//! a context keep its scopes, as those of any `ContextVar`, when these end in the context itself.

use crate::call::call;
use crate::failure;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool_c::boundary::Text;
use vrampool_c::scopes::ThreadScope;
use vrampool_c::{Status, begin_scope, vrampool_tag_create};

/// Whether a scope of tags was ever opened: most programs open none, and their allocations look for none.
static TAGS_ARE_USED: AtomicBool = AtomicBool::new(false);

/// Says that allocations have tags from now on.
fn use_tags() {
    // Relaxed: a scope is opened, and used, by a thread that called this before.
    TAGS_ARE_USED.store(true, Ordering::Relaxed);
}

/// Whether allocations may have tags.
#[inline]
pub(crate) fn tags_are_used() -> bool {
    // Relaxed: as above.
    TAGS_ARE_USED.load(Ordering::Relaxed)
}

/// A scope that a context is in.
#[pyclass(frozen, module = "vrampool._native")]
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) value: Py<PyAny>,
    pool: u64,
    /// False if it ended in another context, or before an inner one.
    is_open: AtomicBool,
    /// Its counterpart for allocations of C.
    of_thread: Option<ThreadScope>,
    outer: Option<Py<Opened>>,
}

/// A value that a `ContextVar` has within `with`.
#[pyclass(frozen, module = "vrampool._native")]
#[derive(Debug)]
pub(crate) struct Scope {
    variable: Py<PyAny>,
    value: Py<PyAny>,
    pool: u64,
    is_of_thread: bool,
    /// With the token of the variable.
    opened: OnceLock<(Py<Opened>, Py<PyAny>)>,
    has_ended: AtomicBool,
}

#[pymethods]
impl Scope {
    /// For the tag of a pool, which is the value, `pool` is the pool's handle. With `is_of_thread` the thread's allocations of
    /// C are in the scope, too.
    #[new]
    #[pyo3(signature = (variable, value, pool=0, *, is_of_thread=false))]
    fn new(variable: Py<PyAny>, value: Py<PyAny>, pool: u64, is_of_thread: bool) -> Self {
        Self {
            variable,
            value,
            pool,
            is_of_thread,
            opened: OnceLock::new(),
            has_ended: AtomicBool::new(false),
        }
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        if self.opened.get().is_some() {
            return Err(PyRuntimeError::new_err("a scope is entered once"));
        }
        let outer = innermost(py, &self.variable, None)?;
        let of_thread = if self.pool == 0 { None } else { self.begin(py, outer.as_ref())? };
        let (value, is_open) = (self.value.clone_ref(py), AtomicBool::new(true));
        let opened = Py::new(py, Opened { value, pool: self.pool, is_open, of_thread, outer })?;
        let token = self.variable.call_method1(py, "set", (&opened,))?;
        let _ = self.opened.set((opened, token));
        Ok(())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some((opened, token)) = self.opened.get() else { return Ok(()) };
        // Relaxed, here and below: only the value matters.
        if self.has_ended.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let innermost = self.variable.call_method0(py, "get")?;
        let is_innermost = innermost.is(opened);
        let is_own_context = self.variable.call_method1(py, "reset", (token,)).is_ok();
        if !is_innermost {
            self.variable.call_method1(py, "set", (innermost,))?;
        } else if !is_own_context {
            self.variable.call_method1(py, "set", (&opened.get().outer,))?;
        }
        self.end(is_own_context && is_innermost);
        Ok(())
    }
}

impl Scope {
    fn end(&self, copies_keep_it: bool) {
        let Some((opened, _)) = self.opened.get() else { return };
        opened.get().is_open.store(copies_keep_it, Ordering::Relaxed);
        if let Some(of_thread) = &opened.get().of_thread {
            of_thread.end();
        }
    }

    /// Makes the tag of the scope, and begins the thread's scope if there is one.
    fn begin(&self, py: Python<'_>, outer: Option<&Py<Opened>>) -> PyResult<Option<ThreadScope>> {
        let tag = CString::new(self.value.bind(py).cast::<PyBytes>()?.as_bytes())?;
        if !self.is_of_thread {
            use_tags();
            return match py.detach(|| vrampool_tag_create(self.pool, Text::from(&*tag))) {
                Status::OK => Ok(None),
                status => Err(failure::of_status(py, status)),
            };
        }
        if ThreadScope::is_innermost(None).is_some() {
            let is_open = |opened: &&Py<Opened>| {
                ThreadScope::is_innermost(opened.get().of_thread.as_ref()) == Some(true)
            };
            let mut own = std::iter::successors(outer, |opened| opened.get().outer.as_ref());
            if !own.any(|opened| is_open(&opened)) {
                let text = "another task of this thread has a tag open, under which all of the thread's memory is allocated; \
                            leave `with vrampool.torch.tag(...)` before `await`";
                return Err(failure::of_kind(py, "BusyError", text.into()));
            }
        }
        use_tags();
        begin_scope(self.pool, Text::from(&*tag)).map(Some).map_err(|status| failure::of_status(py, status))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if !*self.has_ended.get_mut() {
            self.end(false);
        }
    }
}

/// The innermost open scope of the current context, if there is one; that of a pool.
pub(crate) fn innermost(
    py: Python<'_>,
    variable: &Py<PyAny>,
    pool: Option<u64>,
) -> PyResult<Option<Py<Opened>>> {
    let mut at = variable.call_method0(py, "get")?.extract::<Option<Py<Opened>>>(py)?;
    while let Some(opened) = &at {
        let is_open = opened.get().is_open.load(Ordering::Relaxed);
        if is_open && pool.is_none_or(|pool| pool == opened.get().pool) {
            break;
        }
        at = opened.get().outer.as_ref().map(|outer| outer.clone_ref(py));
    }
    Ok(at)
}

/// The value that a `ContextVar` has in the innermost scope of the current context; `None` outside of any.
#[pyfunction]
#[pyo3(signature = (variable, pool=None))]
pub(crate) fn current(py: Python<'_>, variable: Py<PyAny>, pool: Option<u64>) -> PyResult<Option<Py<PyAny>>> {
    Ok(innermost(py, &variable, pool)?.map(|opened| opened.get().value.clone_ref(py)))
}

/// Gives a `ContextVar` a value from now on, in the current context.
#[pyfunction]
pub(crate) fn assign(py: Python<'_>, variable: Py<PyAny>, value: Py<PyAny>) -> PyResult<()> {
    let opened = Opened { value, pool: 0, is_open: AtomicBool::new(true), of_thread: None, outer: None };
    variable.call_method1(py, "set", (Py::new(py, opened)?,)).map(drop)
}

/// Two calls around `with`, of which the second is repeated until no interrupt ends it.
#[pyclass(frozen, module = "vrampool._native")]
#[derive(Debug)]
pub(crate) struct Around {
    begin: Py<PyAny>,
    end: Py<PyAny>,
}

#[pymethods]
impl Around {
    #[new]
    fn new(begin: Py<PyAny>, end: Py<PyAny>) -> Self {
        Self { begin, end }
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let begun = call(self.begin.bind(py), ()).map(drop);
        // An interrupt may have come after it.
        begun
            .inspect_err(|error| drop(is_interrupt(py, error).then(|| self.__exit__(py, py.None().bind(py)))))
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut interrupted = Ok(());
        loop {
            match call(self.end.bind(py), ()) {
                Err(error) if is_interrupt(py, &error) => interrupted = Err(error),
                ended => return ended.map(drop).and(interrupted),
            }
        }
    }
}

/// Whether it is an exception that ends programs, as Ctrl-C.
pub(crate) fn is_interrupt(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py)
}
