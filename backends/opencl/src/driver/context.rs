//! Contexts, and points in the work of their queues.

use super::calls::Calls;
use super::device::RawDevice;
use super::handle::Handle;
use super::library::Library;
use super::queue::Queue;
use crate::error::{check, is_ambiguous};
use opencl_sys as cl;
use parking_lot::ReentrantMutexGuard;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool_backend::{BackendError, fork};

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
    calls: Calls,
    /// Whether the driver has said, or shown, that nothing works on it any more.
    lost: AtomicBool,
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        if fork::is_forked() {
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
        let (list, mut code, unset) = (device.handle().raw(), 0, std::ptr::null_mut());
        // SAFETY: platform and device are ones that the driver listed; the list of properties ends with 0;
        // no function is called for errors; the call writes one number to `code`.
        let context = unsafe {
            (library.core.clCreateContext)(
                properties.as_ptr(),
                1,
                &raw const list,
                None,
                unset,
                &raw mut code,
            )
        };
        check("clCreateContext", code)?;
        // SAFETY: the context was created above, and its count is given away here.
        unsafe { Self::adopt(library, Handle::of(context), device) }
    }

    /// # Safety
    /// `handle` is a context of `device`, and the caller gives away one count of it, also when this fails.
    pub(super) unsafe fn adopt(
        library: &'static Library,
        handle: Handle,
        device: RawDevice,
    ) -> Result<Self, BackendError> {
        let calls = Calls::default();
        // SAFETY: the caller's promise.
        let queue = || unsafe { Queue::create(library, handle, &device, &calls) };
        let queues = queue().and_then(|transfer| Ok((transfer, queue()?)));
        // SAFETY: the device exists, and is released with the context.
        let retained =
            check("clRetainDevice", unsafe { (library.core.clRetainDevice)(device.handle().raw()) });
        match retained.and(queues) {
            Ok((transfer, endings)) => {
                let lost = AtomicBool::new(false);
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

    pub(super) fn calls(&self) -> &Calls {
        &self.inner.calls
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

    pub(super) fn endings(&self) -> &Queue {
        &self.inner.endings
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.inner.handle == other.inner.handle
    }

    pub(crate) fn create_queue(&self) -> Result<Queue, BackendError> {
        // SAFETY: the context and its device are alive.
        let queue = unsafe { Queue::create(self.library(), self.handle(), self.device(), self.calls()) };
        self.judged(queue)
    }

    /// Distinguishes an error after which the device is of no more use from one after which it is, where the driver
    /// uses one number for both: by giving it something to do.
    pub(crate) fn judged<T>(&self, result: Result<T, BackendError>) -> Result<T, BackendError> {
        let result = match result {
            Err(error) if is_ambiguous(&error) && self.is_broken() => {
                Err(BackendError::lost(error.to_string()))
            }
            other => other,
        };
        if result.as_ref().is_err_and(BackendError::is_device_lost) {
            // Relaxed: a hint for the next open of the device.
            self.inner.lost.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Whether an error has said that nothing works on it any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.inner.lost.load(Ordering::Relaxed)
    }

    /// Whether it does not even mark a point any more.
    pub(super) fn is_broken(&self) -> bool {
        self.mark(self.transfer()).and_then(|mark| mark.wait_plainly()).is_err()
    }

    /// Work on `queue`, in the order of its stream.
    pub(super) fn enqueue(
        &self,
        call: &'static str,
        queue: &Queue,
        work: impl FnOnce(cl::cl_command_queue) -> cl::cl_int,
    ) -> Result<(), BackendError> {
        let turn = self.turn();
        let done = check(call, work(queue.handle().raw()));
        drop(turn);
        self.judged(done)
    }

    /// The same, sent on its way, and the point in the stream where it is done. Not judged.
    pub(super) fn enqueue_for_event(
        &self,
        call: &'static str,
        queue: &Queue,
        work: impl FnOnce(cl::cl_command_queue, *mut cl::cl_event) -> cl::cl_int,
    ) -> Result<RawEvent, BackendError> {
        let mut event = std::ptr::null_mut();
        let _turn = self.turn();
        check(call, work(queue.handle().raw(), &raw mut event))?;
        let event = RawEvent { handle: Handle::of(event), context: self.clone() };
        self.flush(queue)?;
        Ok(event)
    }

    /// Marks the end of the work on `queue`. Others may wait for the mark.
    pub(crate) fn record(&self, queue: &Queue) -> Result<RawEvent, BackendError> {
        self.judged(self.mark(queue))
    }

    /// The same, not judged.
    fn mark(&self, queue: &Queue) -> Result<RawEvent, BackendError> {
        self.enqueue_for_event("clEnqueueMarkerWithWaitList", queue, |queue, event| {
            // SAFETY: the queue is alive; the call writes one handle to `event`.
            unsafe { (self.library().core.clEnqueueMarkerWithWaitList)(queue, 0, std::ptr::null(), event) }
        })
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

    fn flush(&self, queue: &Queue) -> Result<(), BackendError> {
        check("clFlush", self.flush_for_code(queue))
    }

    pub(super) fn flush_for_code(&self, queue: &Queue) -> cl::cl_int {
        let _turn = self.turn();
        // SAFETY: the queue is alive.
        unsafe { (self.library().core.clFlush)(queue.handle().raw()) }
    }

    pub(crate) fn synchronize(&self, queue: &Queue) -> Result<(), BackendError> {
        // Flushes, too.
        let mark = self.mark(queue);
        // SAFETY: the queue is alive.
        let finished = check("clFinish", unsafe { (self.library().core.clFinish)(queue.handle().raw()) });
        // NVIDIA's driver (580) at times says only later of an event before that it is complete. Whether the
        // queue is finished is the other call's to say.
        let _ = mark.and_then(|mark| mark.wait_plainly());
        self.judged(finished)
    }
}

pub(super) fn handles_of(events: &[&RawEvent]) -> Vec<cl::cl_event> {
    events.iter().map(|event| event.handle.raw()).collect()
}

/// A point in a stream.
#[derive(Debug)]
pub(crate) struct RawEvent {
    pub(super) handle: Handle,
    pub(super) context: Context,
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
        let (status, code) = self.ask_status();
        check("clGetEventInfo", code)?;
        match status {
            failed if failed < 0 => check("the work before the event", failed).map(|()| failed),
            status => Ok(status),
        }
    }

    /// The status, and the code that the driver returns.
    fn ask_status(&self) -> (cl::cl_int, cl::cl_int) {
        let (mut status, size) = (0, size_of::<cl::cl_int>());
        let what = cl::CL_EVENT_COMMAND_EXECUTION_STATUS;
        let (to, nowhere) = ((&raw mut status).cast::<c_void>(), std::ptr::null_mut());
        let ask = self.context.library().core.clGetEventInfo;
        let _turn = self.context.turn();
        // SAFETY: the event is alive; the call writes a number of that size to `status`.
        let code = unsafe { ask(self.handle.raw(), what, size, to, nowhere) };
        (status, code)
    }

    /// Blocks the host until the point is reached.
    pub(crate) fn wait(&self) -> Result<(), BackendError> {
        let done = self.wait_plainly();
        self.context.judged(done)
    }

    pub(super) fn wait_plainly(&self) -> Result<(), BackendError> {
        let code = self.block();
        // It says that there was a failure; the event says which.
        self.status().and_then(|_| check("clWaitForEvents", code))
    }

    /// As [`wait_plainly`](Self::wait_plainly), and returns the code of what failed; 0 if nothing did.
    pub(super) fn wait_for_code(&self) -> cl::cl_int {
        let waited = self.block();
        let (status, asked) = self.ask_status();
        [status.min(0), waited, asked].into_iter().find(|&code| code != 0).unwrap_or(0)
    }

    fn block(&self) -> cl::cl_int {
        let list = [self.handle.raw()];
        // SAFETY: the event is alive.
        unsafe { (self.context.library().core.clWaitForEvents)(1, list.as_ptr()) }
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        if fork::is_forked() {
            return;
        }
        let _turn = self.context.turn();
        // SAFETY: this value had a count of the event. Work that waits for it goes on unharmed.
        let _ = unsafe { (self.context.library().core.clReleaseEvent)(self.handle.raw()) };
    }
}
