//! A `std::function<bool(cudaStream_t)>`, as libstdc++ has them.

use parking_lot::ReentrantMutex;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;

/// Where a function keeps what it captured, or a pointer to it.
type Functor = [usize; 2];

/// A `std::function<bool(cudaStream_t)>` of C++'s, by its address.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct CppFunction(*const Function);

impl CppFunction {
    /// None.
    #[must_use]
    pub fn null() -> Self {
        Self(std::ptr::null())
    }
}

/// libstdc++'s layout of a function, which is a part of its stable ABI.
#[repr(C)]
struct Function {
    functor: Functor,
    /// Copies and destroys; null of an empty function.
    manage: Option<unsafe extern "C-unwind" fn(*mut Functor, *const Functor, c_int) -> bool>,
    invoke: Option<unsafe extern "C-unwind" fn(*const Functor, *mut *mut c_void) -> bool>,
}

/// `_Manager_operation`.
const CLONE: c_int = 2;
const DESTROY: c_int = 3;

/// A copy of a caller's function, called by one thread at a time.
pub(crate) struct Filter {
    function: ReentrantMutex<Function>,
    /// It is being asked, and what it calls asks it again.
    is_asked: Cell<bool>,
}

// SAFETY: what it captured is C++'s, and PyTorch's functions are made to be asked on any thread; the lock
// lets one at a time, which alone changes the flag.
unsafe impl Send for Filter {}
// SAFETY: as above.
unsafe impl Sync for Filter {}

impl Filter {
    /// A copy of the function there; `None` of null or an empty one. What its copy constructor throws goes on
    /// to the caller.
    pub(crate) fn copy_of(function: CppFunction) -> Option<Self> {
        if function.0.is_null() {
            return None;
        }
        // SAFETY: C++'s promise: it has this layout, and does not change meanwhile. Rust has no other than
        // null.
        let function = unsafe { &*function.0 };
        let (manage, invoke) = (function.manage?, function.invoke?);
        let mut functor = MaybeUninit::<Functor>::zeroed();
        // SAFETY: the manager of a function copies what that has into an empty place.
        unsafe { manage(functor.as_mut_ptr(), &raw const function.functor, CLONE) };
        // SAFETY: two numbers, which were 0 before they were written.
        let functor = unsafe { functor.assume_init() };
        let function = Function { functor, manage: Some(manage), invoke: Some(invoke) };
        Some(Self { function: ReentrantMutex::new(function), is_asked: Cell::new(false) })
    }

    /// Asks it. What it throws goes on to the caller. It accepts nothing that is asked for while it is asked.
    pub(crate) fn accepts(&self, stream: *mut c_void) -> bool {
        let function = self.function.lock();
        let Some(invoke) = function.invoke else { return true };
        if self.is_asked.replace(true) {
            return false;
        }
        let _asked = Asked(&self.is_asked);
        let mut stream = stream;
        // SAFETY: a function's invoker with what that captured, and the argument by reference, as `Args&&...`
        // are passed.
        unsafe { invoke(&raw const function.functor, &raw mut stream) }
    }
}

/// The time in which a filter is asked, also when it throws.
struct Asked<'a>(&'a Cell<bool>);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        let function = self.function.get_mut();
        let functor = &raw mut function.functor;
        if let Some(manage) = function.manage {
            // SAFETY: the manager of a function, for the copy that it made, which is no longer used.
            // Destructors do not throw.
            unsafe { manage(functor, functor.cast_const(), DESTROY) };
        }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.function.lock().functor).finish()
    }
}
