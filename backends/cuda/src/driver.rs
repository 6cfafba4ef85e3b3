//! Contexts, memory, queues and events as the driver has them. With its parts, the only unsafe code of this
//! backend.
//!
//! What is unsafe about the driver is the life of what its handles name. So each handle is in a value that
//! owns what it names, or keeps the owner alive, and a function here takes such values, never a handle:
//! [`Context`], [`Allocation`], [`Queue`], [`RawEvent`]. A context is entered before a call and left after
//! it, and left as it was found.

mod allocation;
mod device;
mod foreign;
mod library;
mod memory_pool;
mod peers;
mod shared_handles;
mod test_kernels;
mod virtual_memory;

pub(crate) use allocation::{Allocation, Origin, Span};
pub(crate) use device::RawDevice;
pub(crate) use library::Library;
pub(crate) use memory_pool::{Figure, RawPool};
pub use test_kernels::TestKernels;
pub(crate) use virtual_memory::{PhysicalTraits, RawPhysical};

use crate::error::{NOT_READY, from_cudarc};
use cudarc::driver::{CudaContext, CudaStream, sys};
use std::ffi::{c_int, c_uint};
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use vrampool_backend::{BackendError, fork};

/// The handles that stand for the default streams: the context's one (0 or 1), and each thread's own (2).
const LEGACY_HANDLE: usize = 1;
const PER_THREAD_HANDLE: usize = 2;
/// `CU_EVENT_DISABLE_TIMING`: such events cost less to record and to wait for.
const WITHOUT_TIMING: c_uint = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: c_int = 2;

/// A context, kept alive, and the library whose functions work on it.
#[derive(Debug)]
pub(crate) struct Context {
    library: &'static Library,
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
        if fork::is_child() {
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
        // SAFETY: the context exists. When it is gone, calls on this thread answer so, until another one is
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
/// touched, because it may be a context that somebody has destroyed, which the driver survives only where it
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
    context: &'a Context,
    pushed: bool,
    /// What is current is a property of the thread.
    this_thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = std::ptr::null_mut();
            // SAFETY: it takes off the stack what `enter` put there; nobody else's entry, since entries are
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

    pub(crate) fn synchronize(&self, queue: &Queue) -> Result<(), BackendError> {
        let stream = queue.handle()?;
        // A capture of another stream forbids it otherwise, and would fail by it.
        let _relaxed = self.relaxed();
        // SAFETY: the queue keeps its stream alive.
        let code = unsafe { (self.context.library.cuStreamSynchronize)(stream) };
        self.context.library.check("cuStreamSynchronize", code)
    }

    /// Whether work enqueued now would go into a graph instead of being done.
    pub(crate) fn is_capturing(&self, queue: &Queue) -> Result<bool, BackendError> {
        let (stream, mut status) = (queue.handle()?, 0);
        // SAFETY: the queue keeps its stream alive; the call writes one number to `status`.
        let code = unsafe { (self.context.library.cuStreamIsCapturing)(stream, &raw mut status) };
        self.context.library.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// The driver's number of the capture that a stream is a part of, which it uses for no other; 0 of one
    /// that failed.
    pub(crate) fn capture_of(&self, queue: &Queue) -> Result<Option<u64>, BackendError> {
        let (stream, mut status, mut id) = (queue.handle()?, 0, 0);
        let (graph, nodes, count) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let ask = self.context.library.cuStreamGetCaptureInfo_v2;
        // SAFETY: the queue keeps its stream alive; the call writes one number each to `status` and `id`, and
        // what is not wanted of the graph has null in its place, which the driver's header allows.
        let code = unsafe { ask(stream, &raw mut status, &raw mut id, graph, nodes, count) };
        self.context.library.check("cuStreamGetCaptureInfo", code)?;
        Ok((status != 0).then_some(id))
    }

    /// The driver's own number of a stream, which it never uses again. `None` while the stream is captured:
    /// asking for it would fail the capture.
    pub(crate) fn number_of(&self, queue: &Queue) -> Result<Option<u64>, BackendError> {
        let (stream, mut number) = (queue.handle()?, 0);
        // The context's default stream cannot be captured, and whether it is cannot be asked during a capture.
        if stream as usize > LEGACY_HANDLE && self.is_capturing(queue)? {
            return Ok(None);
        }
        let _relaxed = self.relaxed();
        // SAFETY: the queue keeps its stream alive; the call writes one number to `number`.
        let code = unsafe { (self.context.library.cuStreamGetId)(stream, &raw mut number) };
        self.context.library.check("cuStreamGetId", code)?;
        Ok(Some(number))
    }

    pub(crate) fn wait(&self, queue: &Queue, event: &RawEvent) -> Result<(), BackendError> {
        let stream = queue.handle()?;
        // SAFETY: the queue keeps its stream alive and the event is alive; it may be destroyed or recorded
        // again when the call has returned, because the driver takes the point, not the event, into the
        // stream.
        let code = unsafe { (self.context.library.cuStreamWaitEvent)(stream, event.handle(), 0) };
        self.context.library.check("cuStreamWaitEvent", code)
    }

    pub(crate) fn record(&self, queue: &Queue, event: &RawEvent) -> Result<(), BackendError> {
        let stream = queue.handle()?;
        // SAFETY: the queue keeps its stream alive, and the event is alive.
        let code = unsafe { (self.context.library.cuEventRecord)(event.handle(), stream) };
        self.context.library.check("cuEventRecord", code)
    }

    /// Lets this thread make calls that a capture elsewhere in the process forbids by default, until dropped.
    fn relaxed(&self) -> Relaxed {
        Relaxed::new(self.context.library)
    }
}

/// This thread under `CU_STREAM_CAPTURE_MODE_RELAXED`: a capture of any thread neither fails what is called
/// here nor is spoilt by it. For calls that take or give memory, and for waiting on the host, or asking, for
/// what is not captured.
struct Relaxed {
    library: &'static Library,
    /// The thread's own mode; none where the driver did not change it.
    before: Option<c_int>,
}

impl Relaxed {
    fn new(library: &'static Library) -> Self {
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

/// A stream, kept alive, as the driver's calls are to name it.
#[derive(Debug)]
pub(crate) struct Queue {
    stream: Arc<CudaStream>,
    /// Whose default stream it is, where it is the default stream of a thread.
    thread: Option<ThreadId>,
    /// Whether its owner is about to destroy it: its work is done, and its handle is not to be used any more,
    /// because the driver crashes on one that it has destroyed.
    retired: AtomicBool,
}

/// The name of a [`Queue`]; another stream may have it once this one is destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct QueueName {
    handle: usize,
    thread: Option<ThreadId>,
}

impl Queue {
    pub(crate) fn new(stream: Arc<CudaStream>) -> Self {
        let per_thread = stream.cu_stream() as usize == PER_THREAD_HANDLE;
        let thread = per_thread.then(|| std::thread::current().id());
        Self { stream, thread, retired: AtomicBool::new(false) }
    }

    pub(crate) fn cudarc(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// What no other stream that exists has: its handle, and the thread whose default stream it is.
    pub(crate) fn name(&self) -> QueueName {
        let handle = self.stream.cu_stream() as usize;
        // Both mean the context's default stream.
        QueueName { handle: if handle == LEGACY_HANDLE { 0 } else { handle }, thread: self.thread }
    }

    /// Whether its handle means another stream on this thread.
    pub(crate) fn is_of_another_thread(&self) -> bool {
        self.thread.is_some_and(|thread| thread != std::thread::current().id())
    }

    pub(crate) fn retire(&self) {
        // Release: pairs with the acquire in `is_retired`; what the caller does next, destroying the stream,
        // comes after.
        self.retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    pub(crate) fn check_not_retired(&self) -> Result<(), BackendError> {
        match self.is_retired() {
            true => Err(BackendError::invalid("stream", "it was retired: its owner destroys it")),
            false => Ok(()),
        }
    }

    /// The stream's handle; an error once it is retired. On a thread where a per-thread handle would mean
    /// another stream, the context's default stream: it is ordered after and before that one's work, as it is
    /// with every stream that is not non-blocking.
    fn handle(&self) -> Result<sys::CUstream, BackendError> {
        self.check_not_retired()?;
        if self.is_of_another_thread() {
            return Ok(LEGACY_HANDLE as sys::CUstream);
        }
        Ok(self.stream.cu_stream())
    }
}

/// An event without timing.
#[derive(Debug)]
pub(crate) struct RawEvent {
    /// A `CUevent`.
    handle: usize,
    context: Context,
}

impl RawEvent {
    pub(crate) fn new(context: &Context) -> Result<Self, BackendError> {
        let current = context.enter()?;
        let _relaxed = current.relaxed();
        let mut handle = std::ptr::null_mut();
        // SAFETY: a context is current; the call writes one handle, which lives here.
        let code = unsafe { (context.library.cuEventCreate)(&raw mut handle, WITHOUT_TIMING) };
        context.library.check("cuEventCreate", code)?;
        Ok(Self { handle: handle as usize, context: context.clone() })
    }

    fn handle(&self) -> sys::CUevent {
        self.handle as sys::CUevent
    }

    pub(crate) fn is_complete(&self) -> Result<bool, BackendError> {
        fork::check()?;
        // A capture of another stream forbids it otherwise, and would fail by it.
        let _relaxed = Relaxed::new(self.context.library);
        // SAFETY: the event is alive; the call needs no current context.
        let code = unsafe { (self.context.library.cuEventQuery)(self.handle()) };
        if code == NOT_READY {
            return Ok(false);
        }
        self.context.library.check("cuEventQuery", code).map(|()| true)
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        // On a lost device there is nothing left to destroy.
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: this value owned the event, and nobody has it any more. Work that waits for it goes on
        // unharmed.
        let _ = unsafe { (self.context.library.cuEventDestroy_v2)(self.handle()) };
    }
}
