//! Foreign contexts and queues: safety here relies on the caller.

use super::device::{handles, info, number};
use super::{Context, Handle, Library, Queue, RawDevice};
use crate::device::OpenClDevice;
use crate::error::check;
use crate::stream::OpenClStream;
use opencl_sys as cl;
use std::sync::Arc;
use vrampool_backend::BackendError;

impl OpenClDevice {
    /// A device in a context that is there already: the one the program's own kernels run in. The context may
    /// have several devices; `device` is one of them. Both are kept alive by a count of this crate's own.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] without a library; [`BackendError::InvalidArgument`] when the context
    /// does not have the device; else errors of the driver.
    ///
    /// # Safety
    /// `context` and `device` are handles of what exists, of the library that this crate opens:
    /// `libOpenCL.so.1`, or what `OPENCL_DYLIB_PATH` names.
    pub unsafe fn from_context(
        context: cl::cl_context,
        device: cl::cl_device_id,
    ) -> Result<Self, BackendError> {
        let library = Library::get()?;
        let devices = info("clGetContextInfo", |size, place, written| {
            // SAFETY: the caller vouches for the context; the call writes at most `size` bytes to `place`,
            // and one number to `written`.
            unsafe { (library.core.clGetContextInfo)(context, cl::CL_CONTEXT_DEVICES, size, place, written) }
        })?;
        let device = Handle::of(device);
        if !handles(&devices).any(|other| other == device) {
            return Err(BackendError::invalid("device", "it does not belong to the context"));
        }
        // A part of a device is in no list; it is known by its context, and numbered as the first.
        let all = RawDevice::all(library)?;
        let ordinal = all.iter().position(|other| other.handle() == device).unwrap_or(0);
        // SAFETY: the context has the device, and is kept alive with it.
        let device = unsafe { RawDevice::of(library, device) }?;
        // SAFETY: the caller vouches for the context.
        check("clRetainContext", unsafe { (library.core.clRetainContext)(context) })?;
        // SAFETY: the context has the device, and the count was taken above.
        let context = unsafe { Context::adopt(library, Handle::of(context), device) }?;
        Self::of_foreign(context, ordinal)
    }

    /// A queue that other code made, by its handle. It is kept alive by a count of this crate's own.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for a queue of another context or device, or one that runs work out of order;
    /// else errors of the driver.
    ///
    /// # Safety
    /// `queue` is the handle of a command queue that exists.
    pub unsafe fn wrap_queue(&self, queue: cl::cl_command_queue) -> Result<OpenClStream, BackendError> {
        let context = &self.core.context;
        let library = context.library();
        let _turn = context.turn();
        let ask = |what| {
            let answer = info("clGetCommandQueueInfo", |size, place, written| {
                // SAFETY: the caller vouches for the queue; the call writes at most `size` bytes to `place`,
                // and one number to `written`.
                unsafe { (library.core.clGetCommandQueueInfo)(queue, what, size, place, written) }
            });
            answer.map(|bytes| number(&bytes))
        };
        if ask(cl::CL_QUEUE_CONTEXT)? != context.handle().number() {
            return Err(BackendError::invalid("stream", "it belongs to another context"));
        }
        if ask(cl::CL_QUEUE_DEVICE)? != context.device().handle().number() {
            return Err(BackendError::invalid("stream", "it belongs to another device of the context"));
        }
        if ask(cl::CL_QUEUE_PROPERTIES)? & cl::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0 {
            return Err(BackendError::invalid(
                "stream",
                "it runs work out of order; create a queue in order",
            ));
        }
        // SAFETY: the caller vouches for the queue.
        check("clRetainCommandQueue", unsafe { (library.core.clRetainCommandQueue)(queue) })?;
        let calls = Arc::clone(context.calls());
        let queue = Queue { library, handle: Handle::of(queue), calls };
        Ok(OpenClStream::of(&self.core, queue))
    }
}
