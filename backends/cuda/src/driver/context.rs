//! Contexts, current on a thread for as long as its calls take.

use super::device::RawDevice;
use super::library::Library;
use crate::error::from_cudarc;
use cudarc::driver::CudaContext;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;
use vrampool_backend::{BackendError, fork};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: c_int = 2;

/// A context, kept alive, and the library whose functions work on it.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) library: &'static Library,
    core: Arc<CudaContext>,
    /// Last: what is before it would make the context current when it is dropped, and leave it so.
    cover: Cover,
}

impl Clone for Context {
    fn clone(&self) -> Self {
        Self::of(self.library, Arc::clone(&self.core))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if fork::is_forked() {
            // The context is the parent's: it is never dropped here.
            return mem::forget(Arc::clone(&self.core));
        }
        if Arc::strong_count(&self.core) == 1 {
            self.cover = Cover::with(self);
            if !self.core.is_primary() {
                // Destroying a context takes it off the stack, which letting a primary one go does not.
                self.cover.keep();
            }
        }
    }
}

impl Context {
    /// The primary context of a device, kept until the last handle to it is dropped.
    pub(crate) fn primary(library: &'static Library, ordinal: usize) -> Result<Self, BackendError> {
        let device = RawDevice::at(library, ordinal)?.handle();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the driver is initialised; the call writes one handle, which lives here.
        let code = unsafe { (library.cuDevicePrimaryCtxRetain)(&raw mut handle, device) };
        library.check("cuDevicePrimaryCtxRetain", code)?;
        // `cudarc` makes the context current for good, unless it is current already.
        // SAFETY: the context was retained above and is released below.
        let pushed = unsafe { (library.cuCtxPushCurrent_v2)(handle) } == 0;
        let core = CudaContext::new(ordinal);
        if pushed {
            // SAFETY: it takes off the stack what was put there above.
            let _ = unsafe { (library.cuCtxPopCurrent_v2)(&raw mut handle) };
        }
        // SAFETY: the context was retained above, once; `cudarc` has retained it for itself.
        let _ = unsafe { (library.cuDevicePrimaryCtxRelease_v2)(device) };
        let core = core.map_err(|error| from_cudarc(library, "cuDevicePrimaryCtxRetain", error))?;
        Ok(Self::of(library, core))
    }

    pub(crate) fn of(library: &'static Library, core: Arc<CudaContext>) -> Self {
        Self { library, core, cover: Cover::default() }
    }

    pub(crate) fn cudarc(&self) -> &Arc<CudaContext> {
        &self.core
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    pub(crate) fn is_same(&self, other: &CudaContext) -> bool {
        self.core.cu_ctx() == other.cu_ctx()
    }

    /// Whether it is current on this thread. Where the driver does not say, it is pushed again.
    fn is_current(&self) -> bool {
        let mut current = std::ptr::null_mut();
        // SAFETY: the driver is initialised; the call writes one handle to `current`.
        let code = unsafe { (self.library.cuCtxGetCurrent)(&raw mut current) };
        code == 0 && current == self.core.cu_ctx()
    }

    /// Makes the context current on this thread, and leaves it so.
    pub(crate) fn make_current(&self) -> Result<(), BackendError> {
        fork::check()?;
        let library = self.library;
        if self.is_current() {
            return Ok(());
        }
        // SAFETY: the context exists. Once it is destroyed, calls on this thread return that, until another one is
        // current.
        library.check("cuCtxSetCurrent", unsafe { (library.cuCtxSetCurrent)(self.core.cu_ctx()) })
    }

    /// Makes the context current on this thread until the result is dropped. Fails in a forked child, so that
    /// nothing behind it calls the driver there.
    pub(crate) fn enter(&self) -> Result<Current<'_>, BackendError> {
        fork::check()?;
        let library = self.library;
        let pushed = !self.is_current();
        if pushed {
            // SAFETY: the context exists for as long as `self.core` does, which outlives the result.
            let code = unsafe { (library.cuCtxPushCurrent_v2)(self.core.cu_ctx()) };
            library.check("cuCtxPushCurrent", code)?;
        }
        Ok(Current { context: self, pushed, this_thread: PhantomData })
    }
}

/// A context on top of what this thread has current, until this is dropped: `cudarc` makes a context current
/// to drop a stream or a context, and leaves it so, unless it is current already. What lies below is never
/// touched, because it may be a context that some code has destroyed, which the driver survives only where it
/// is.
#[derive(Debug, Default)]
pub(crate) struct Cover(Option<&'static Library>);

impl Cover {
    pub(crate) fn with(context: &Context) -> Self {
        let pushed = context.enter().is_ok_and(|mut current| mem::take(&mut current.pushed));
        Self(pushed.then_some(context.library))
    }

    /// Leaves the context on top.
    fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for Cover {
    fn drop(&mut self) {
        if let Some(library) = self.0 {
            let mut popped = std::ptr::null_mut();
            // SAFETY: it takes off the stack what `with` put there, which nothing in between has taken off.
            let _ = unsafe { (library.cuCtxPopCurrent_v2)(&raw mut popped) };
        }
    }
}

/// This thread, with a context current.
#[derive(Debug)]
pub(crate) struct Current<'a> {
    pub(super) context: &'a Context,
    pushed: bool,
    /// The current context is a property of the thread.
    this_thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = std::ptr::null_mut();
            // SAFETY: it takes off the stack what `enter` put there; no other thread's entry, since entries are
            // dropped in reverse order on the one thread that this cannot leave.
            let _ = unsafe { (self.context.library.cuCtxPopCurrent_v2)(&raw mut popped) };
        }
    }
}

impl Current<'_> {
    /// (free, total)
    pub(crate) fn memory_info(&self) -> Result<(u64, u64), BackendError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: a context is current; the call writes two sizes, which live here.
        let code = unsafe { (self.context.library.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        self.context.library.check("cuMemGetInfo", code)?;
        Ok((free as u64, total as u64))
    }

    /// Waits for all work of the context.
    pub(crate) fn synchronize_all(&self) -> Result<(), BackendError> {
        // SAFETY: a context is current.
        let code = unsafe { (self.context.library.cuCtxSynchronize)() };
        self.context.library.check("cuCtxSynchronize", code)
    }

    /// Lets this thread make calls that a capture elsewhere in the process forbids by default, until dropped.
    pub(super) fn relaxed(&self) -> Relaxed {
        Relaxed::new(self.context.library)
    }
}

/// This thread under `CU_STREAM_CAPTURE_MODE_RELAXED`: a capture of any thread neither fails what is called
/// here nor is spoilt by it. For calls that take or give memory, and for waiting on the host, or asking, for
/// what is not captured.
pub(super) struct Relaxed {
    library: &'static Library,
    /// The thread's own mode; none where the driver did not change it.
    before: Option<c_int>,
}

impl Relaxed {
    pub(super) fn new(library: &'static Library) -> Self {
        let mut mode = RELAXED;
        // SAFETY: the call swaps `mode`, which lives here, with the mode of this thread.
        let code = unsafe { (library.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        Self { library, before: (code == 0).then_some(mode) }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some(mut mode) = self.before {
            // SAFETY: as in `new`; `mode` is a mode that the driver gave.
            let _ = unsafe { (self.library.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        }
    }
}
