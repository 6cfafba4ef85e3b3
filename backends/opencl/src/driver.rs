//! Contexts, queues, events and memory as the driver has them. With its parts, the only unsafe code of this
//! backend.
//!
//! What is unsafe about the driver is the life of what its handles name. So each handle is in a value that
//! owns a count of what it names, and a function here takes such values, never a handle: [`Context`],
//! [`Allocation`], [`Queue`], [`RawEvent`]. The standard lets every call be made from any thread, but the one
//! that sets a kernel's arguments.

mod allocation;
mod device;
mod foreign;
mod host_side;
mod library;
mod program;
mod test_kernels;

pub(crate) use allocation::{Allocation, KERNEL, Origin, Span, SubBuffer};
pub(crate) use device::RawDevice;
pub(crate) use library::Library;
pub use program::{Arguments, Grid, Kernel, Program};
pub use test_kernels::TestKernels;

use crate::error::{check, is_ambiguous};
use crate::stream::QueueOrder;
use opencl_sys as cl;
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool_backend::{BackendError, fork};

/// What the driver calls something by. A number, because any thread may pass it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Handle(usize);

impl Handle {
    pub(crate) fn of(raw: *mut c_void) -> Self {
        Self(raw.expose_provenance())
    }

    pub(crate) fn raw(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }

    pub(crate) fn number(self) -> u64 {
        self.0 as u64
    }
}

/// A context with one of its devices, kept alive.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    inner: Arc<ContextInner>,
}

#[derive(Debug)]
struct ContextInner {
    library: &'static Library,
    handle: Handle,
    device: RawDevice,
    /// A queue of this crate's own, on which nothing waits for work of the program's: for mapping.
    transfer: Queue,
    /// Another one, for what does wait: the ends of mappings that are in use.
    endings: Queue,
    /// Held during calls that enqueue, take or release, and from a kernel's first argument to its launch. The
    /// standard has no two threads set arguments of one kernel; NVIDIA's driver (580) crashes at times when
    /// two threads launch different kernels, or one launches while another fills or releases memory of the
    /// same context.
    calls: ReentrantMutex<()>,
    /// Whether the driver has said, or shown, that nothing works on it any more.
    lost: AtomicBool,
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        if fork::is_child() {
            return;
        }
        // SAFETY: this value had a count of the context. The queue, which is dropped next, has its own.
        let _ = unsafe { (self.library.core.clReleaseContext)(self.handle.raw()) };
        // SAFETY: this value had a count of the device, which only a part of a device takes notice of.
        let _ = unsafe { (self.library.core.clReleaseDevice)(self.device.handle().raw()) };
    }
}

impl Context {
    /// A new context of one device.
    pub(crate) fn create(library: &'static Library, device: RawDevice) -> Result<Self, BackendError> {
        let properties = [cl::CL_CONTEXT_PLATFORM, device.platform().0 as isize, 0];
        let (list, mut code, nobody) = (device.handle().raw(), 0, std::ptr::null_mut());
        // SAFETY: platform and device are ones that the driver listed; the list of properties ends with 0;
        // nobody is to be told of errors; the call writes one number to `code`.
        let context = unsafe {
            (library.core.clCreateContext)(
                properties.as_ptr(),
                1,
                &raw const list,
                None,
                nobody,
                &raw mut code,
            )
        };
        check("clCreateContext", code)?;
        // SAFETY: the context was created above, and its count is given away here.
        unsafe { Self::adopt(library, Handle::of(context), device) }
    }

    /// # Safety
    /// `handle` is a context of `device`, and the caller gives away one count of it, also when this fails.
    unsafe fn adopt(
        library: &'static Library,
        handle: Handle,
        device: RawDevice,
    ) -> Result<Self, BackendError> {
        // SAFETY: the caller's promise.
        let queue = || unsafe { Queue::create(library, handle, &device, QueueOrder::InOrder) };
        let queues = queue().and_then(|transfer| Ok((transfer, queue()?)));
        // SAFETY: the device exists, and is released with the context.
        let retained =
            check("clRetainDevice", unsafe { (library.core.clRetainDevice)(device.handle().raw()) });
        match retained.and(queues) {
            Ok((transfer, endings)) => {
                let (calls, lost) = (ReentrantMutex::new(()), AtomicBool::new(false));
                Ok(Self {
                    inner: Arc::new(ContextInner { library, handle, device, transfer, endings, calls, lost }),
                })
            }
            Err(error) => {
                // SAFETY: the count is this call's, as the caller promised.
                let _ = unsafe { (library.core.clReleaseContext)(handle.raw()) };
                Err(error)
            }
        }
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.inner.library
    }

    /// One thread's turn to call the driver.
    pub(crate) fn turn(&self) -> ReentrantMutexGuard<'_, ()> {
        self.inner.calls.lock()
    }

    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    pub(crate) fn device(&self) -> &RawDevice {
        &self.inner.device
    }

    pub(crate) fn transfer(&self) -> &Queue {
        &self.inner.transfer
    }

    fn endings(&self) -> &Queue {
        &self.inner.endings
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.inner.handle == other.inner.handle
    }

    pub(crate) fn create_queue(&self, order: QueueOrder) -> Result<Queue, BackendError> {
        // SAFETY: the context and its device are alive.
        let queue = unsafe { Queue::create(self.library(), self.handle(), self.device(), order) };
        self.judged(queue)
    }

    /// Tells an error after which the device is of no more use from one after which it is, where the driver
    /// uses one number for both: by giving it something to do.
    pub(crate) fn judged<T>(&self, result: Result<T, BackendError>) -> Result<T, BackendError> {
        let result = match result {
            Err(error) if is_ambiguous(&error) && self.is_broken() => {
                Err(BackendError::lost(error.to_string()))
            }
            other => other,
        };
        if result.as_ref().is_err_and(BackendError::is_device_lost) {
            // Relaxed: a hint to who opens the device again.
            self.inner.lost.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Whether an error has said that nothing works on it any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.inner.lost.load(Ordering::Relaxed)
    }

    /// Whether it does not even mark a point any more.
    fn is_broken(&self) -> bool {
        let marked =
            self.enqueue_for_event("clEnqueueMarkerWithWaitList", self.transfer(), |queue, event| {
                // SAFETY: the queue is alive; the call writes one handle to `event`.
                unsafe {
                    (self.library().core.clEnqueueMarkerWithWaitList)(queue, 0, std::ptr::null(), event)
                }
            });
        marked.and_then(|event| event.wait_plainly()).is_err()
    }

    /// Work on `queue`, in the order of its stream.
    fn enqueue(
        &self,
        call: &'static str,
        queue: &Queue,
        work: impl FnOnce(cl::cl_command_queue) -> cl::cl_int,
    ) -> Result<(), BackendError> {
        let turn = self.turn();
        let done = queue.in_turn(|handle| check(call, work(handle)));
        drop(turn);
        self.judged(done)
    }

    /// The same, and the point in the stream where it is done. Not judged.
    fn enqueue_for_event(
        &self,
        call: &'static str,
        queue: &Queue,
        work: impl FnOnce(cl::cl_command_queue, *mut cl::cl_event) -> cl::cl_int,
    ) -> Result<RawEvent, BackendError> {
        let mut event = std::ptr::null_mut();
        let turn = self.turn();
        queue.in_turn(|handle| check(call, work(handle, &raw mut event)))?;
        drop(turn);
        Ok(RawEvent { handle: Handle::of(event), context: self.clone() })
    }

    /// Marks the end of the work on `queue`, and sends it on its way, so that others may wait for the mark.
    pub(crate) fn record(&self, queue: &Queue) -> Result<RawEvent, BackendError> {
        let mark = self.enqueue_for_event("clEnqueueMarkerWithWaitList", queue, |queue, event| {
            // SAFETY: the queue is alive; the call writes one handle to `event`. A mark without a list comes
            // after all work before it, out-of-order queues included.
            unsafe { (self.library().core.clEnqueueMarkerWithWaitList)(queue, 0, std::ptr::null(), event) }
        });
        let flushed = mark.and_then(|mark| self.flush(queue).map(|()| mark));
        self.judged(flushed)
    }

    /// Makes later work on `queue` wait for `events`.
    pub(crate) fn wait(&self, queue: &Queue, events: &[&RawEvent]) -> Result<(), BackendError> {
        let list = handles_of(events);
        self.enqueue("clEnqueueBarrierWithWaitList", queue, |queue| {
            // SAFETY: the queue and the events are alive, and of one context, as the callers check.
            unsafe {
                (self.library().core.clEnqueueBarrierWithWaitList)(
                    queue,
                    list.len() as u32,
                    list.as_ptr(),
                    std::ptr::null_mut(),
                )
            }
        })
    }

    pub(crate) fn flush(&self, queue: &Queue) -> Result<(), BackendError> {
        // SAFETY: the queue is alive.
        check("clFlush", unsafe { (self.library().core.clFlush)(queue.handle.raw()) })
    }

    pub(crate) fn synchronize(&self, queue: &Queue) -> Result<(), BackendError> {
        // SAFETY: the queue is alive.
        self.judged(check("clFinish", unsafe { (self.library().core.clFinish)(queue.handle.raw()) }))
    }
}

fn handles_of(events: &[&RawEvent]) -> Vec<cl::cl_event> {
    events.iter().map(|event| event.handle.raw()).collect()
}

/// A queue, kept alive.
#[derive(Debug)]
pub(crate) struct Queue {
    library: &'static Library,
    handle: Handle,
    order: QueueOrder,
    /// Held by whoever enqueues on an out-of-order queue, so that nobody's work gets between another's and
    /// its barriers.
    turn: Mutex<()>,
}

impl Queue {
    /// # Safety
    /// `context` is a context of `device`, and both exist.
    unsafe fn create(
        library: &'static Library,
        context: Handle,
        device: &RawDevice,
        order: QueueOrder,
    ) -> Result<Self, BackendError> {
        let properties = match order {
            QueueOrder::InOrder => 0,
            QueueOrder::OutOfOrder => cl::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
        };
        let mut code = 0;
        // The call of OpenCL 1.2, because its successor is not there on every device that this crate opens.
        //
        // SAFETY: the caller's promise; the call writes one number to `code`.
        let handle = unsafe {
            (library.core.clCreateCommandQueue)(
                context.raw(),
                device.handle().raw(),
                properties,
                &raw mut code,
            )
        };
        if code == cl::CL_INVALID_QUEUE_PROPERTIES {
            return Err(BackendError::unsupported("queues of this order"));
        }
        check("clCreateCommandQueue", code)?;
        Ok(Self { library, handle: Handle::of(handle), order, turn: Mutex::new(()) })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn order(&self) -> QueueOrder {
        self.order
    }

    /// Runs `enqueue` so that what it enqueues comes after all that is on the queue and before all that
    /// follows. On an out-of-order queue by a barrier on either side, which orders what the program enqueues
    /// by itself too.
    fn in_turn<T>(
        &self,
        enqueue: impl FnOnce(cl::cl_command_queue) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let handle = self.handle.raw();
        if self.order == QueueOrder::InOrder {
            return enqueue(handle);
        }
        let _turn = self.turn.lock();
        let barrier = || {
            let (none, nobody) = (std::ptr::null(), std::ptr::null_mut());
            // SAFETY: the queue is alive; a barrier without a list waits for all work before it.
            let code = unsafe { (self.library.core.clEnqueueBarrierWithWaitList)(handle, 0, none, nobody) };
            check("clEnqueueBarrierWithWaitList", code)
        };
        barrier()?;
        let done = enqueue(handle)?;
        barrier()?;
        Ok(done)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if fork::is_child() {
            return;
        }
        // SAFETY: this value had a count of the queue. What is enqueued on it is done all the same.
        let _ = unsafe { (self.library.core.clReleaseCommandQueue)(self.handle.raw()) };
    }
}

/// A point in a stream.
#[derive(Debug)]
pub(crate) struct RawEvent {
    handle: Handle,
    context: Context,
}

impl RawEvent {
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn is_complete(&self) -> Result<bool, BackendError> {
        let status = self.status();
        self.context.judged(status).map(|status| status == cl::CL_COMPLETE)
    }

    fn status(&self) -> Result<cl::cl_int, BackendError> {
        let (mut status, size) = (0, size_of::<cl::cl_int>());
        let what = cl::CL_EVENT_COMMAND_EXECUTION_STATUS;
        let (to, nowhere) = ((&raw mut status).cast::<c_void>(), std::ptr::null_mut());
        let ask = self.context.library().core.clGetEventInfo;
        // SAFETY: the event is alive; the call writes a number of that size to `status`.
        check("clGetEventInfo", unsafe { ask(self.handle.raw(), what, size, to, nowhere) })?;
        match status {
            failed if failed < 0 => check("the work before the event", failed).map(|()| failed),
            status => Ok(status),
        }
    }

    /// Blocks the host until the point is reached.
    pub(crate) fn wait(&self) -> Result<(), BackendError> {
        let done = self.wait_plainly();
        self.context.judged(done)
    }

    fn wait_plainly(&self) -> Result<(), BackendError> {
        let list = [self.handle.raw()];
        // SAFETY: the event is alive.
        let code = unsafe { (self.context.library().core.clWaitForEvents)(1, list.as_ptr()) };
        // It says that there was a failure; the event says which.
        self.status().and_then(|_| check("clWaitForEvents", code))
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        if fork::is_child() {
            return;
        }
        // SAFETY: this value had a count of the event. Work that waits for it goes on unharmed.
        let _ = unsafe { (self.context.library().core.clReleaseEvent)(self.handle.raw()) };
    }
}
