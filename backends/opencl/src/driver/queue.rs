//! Queues as the driver has them, and their order.

use super::calls::Calls;
use super::device::RawDevice;
use super::handle::Handle;
use super::library::Library;
use crate::error::check;
use opencl_sys as cl;
use parking_lot::Mutex;
use std::sync::Arc;
use vrampool_backend::{BackendError, fork};

/// In what order a queue runs what is enqueued on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum QueueOrder {
    /// In the order in which it was enqueued.
    #[default]
    InOrder,
    /// In any order that its barriers and events leave (`CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE`). What this
    /// crate enqueues has a barrier on either side, so that it comes after all work before it and before all
    /// work after it.
    OutOfOrder,
}

/// A queue, kept alive.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(super) library: &'static Library,
    pub(super) handle: Handle,
    pub(super) order: QueueOrder,
    /// Held by the code that enqueues on an out-of-order queue, so that no other work gets between another's and
    /// its barriers.
    pub(super) turn: Mutex<()>,
    /// Its context's.
    pub(super) calls: Calls,
}

impl Queue {
    /// # Safety
    /// `context` is a context of `device`, and both exist.
    pub(super) unsafe fn create(
        library: &'static Library,
        context: Handle,
        device: &RawDevice,
        order: QueueOrder,
        calls: &Calls,
    ) -> Result<Self, BackendError> {
        let properties = match order {
            QueueOrder::InOrder => 0,
            QueueOrder::OutOfOrder => cl::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
        };
        let mut code = 0;
        let _turn = calls.lock();
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
        let calls = Arc::clone(calls);
        Ok(Self { library, handle: Handle::of(handle), order, turn: Mutex::new(()), calls })
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
    pub(super) fn in_turn<T>(
        &self,
        enqueue: impl FnOnce(cl::cl_command_queue) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let handle = self.handle.raw();
        if self.order == QueueOrder::InOrder {
            return enqueue(handle);
        }
        let _turn = self.turn.lock();
        let barrier = || {
            let (none, no_event) = (std::ptr::null(), std::ptr::null_mut());
            // SAFETY: the queue is alive; a barrier without a list waits for all work before it.
            let code = unsafe { (self.library.core.clEnqueueBarrierWithWaitList)(handle, 0, none, no_event) };
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
        if fork::is_forked() {
            return;
        }
        let _turn = self.calls.lock();
        // SAFETY: this value had a count of the queue. What is enqueued on it is done all the same.
        let _ = unsafe { (self.library.core.clReleaseCommandQueue)(self.handle.raw()) };
    }
}
