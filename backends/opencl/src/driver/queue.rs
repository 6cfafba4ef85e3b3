//! Queues of the driver.

use super::calls::Calls;
use super::device::RawDevice;
use super::handle::Handle;
use super::library::Library;
use crate::error::check;
use std::sync::Arc;
use vrampool_backend::{BackendError, fork};

/// A queue that runs work in the order in which it was enqueued, kept alive.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(super) library: &'static Library,
    pub(super) handle: Handle,
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
        calls: &Calls,
    ) -> Result<Self, BackendError> {
        let mut code = 0;
        let _turn = calls.lock();
        // The call of OpenCL 1.2, because its successor is not there on every device that this crate opens.
        //
        // SAFETY: the caller's promise; the call writes one number to `code`.
        let handle = unsafe {
            (library.core.clCreateCommandQueue)(context.raw(), device.handle().raw(), 0, &raw mut code)
        };
        check("clCreateCommandQueue", code)?;
        Ok(Self { library, handle: Handle::of(handle), calls: Arc::clone(calls) })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
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
