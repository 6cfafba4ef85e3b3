//! Events as the driver has them.

use super::context::{Context, Current, Relaxed};
use super::queue::Queue;
use crate::error::NOT_READY;
use cudarc::driver::sys;
use std::ffi::c_uint;
use vrampool_backend::{BackendError, fork};

/// `CU_EVENT_DISABLE_TIMING`: such events cost less to record and to wait for.
const WITHOUT_TIMING: c_uint = 2;

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
        // SAFETY: this value owned the event, and nothing has it any more. Work that waits for it goes on
        // unharmed.
        let _ = unsafe { (self.context.library.cuEventDestroy_v2)(self.handle()) };
    }
}

impl Current<'_> {
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
}
