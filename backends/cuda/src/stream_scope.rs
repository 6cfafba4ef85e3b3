//! The current stream of a thread: the default for work without an explicit stream.

use crate::device::CudaDevice;
use crate::stream::CudaStream;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem;
use vrampool_backend::{Backend, BackendError, Stream};

thread_local! {
    static ENTERED: Entered = const { Entered(RefCell::new(Vec::new())) };
}

#[derive(Debug)]
struct Entered(RefCell<Vec<CudaStream>>);

impl Drop for Entered {
    fn drop(&mut self) {
        // Streams of forgotten scopes are leaked: dropping the last handle calls the driver, whose own variables
        // of this thread may be destroyed by then.
        self.0.take().into_iter().for_each(mem::forget);
    }
}

/// Makes a stream its thread's current one until it is dropped ([`CudaStream::enter`]).
#[derive(Debug)]
#[must_use = "the stream is current until this is dropped"]
pub struct StreamScope {
    stream: CudaStream,
    this_thread: PhantomData<*const ()>,
}

impl Drop for StreamScope {
    fn drop(&mut self) {
        // Destroyed already, in the destructor of another thread-local variable.
        let left = ENTERED.try_with(|entered| {
            let mut entered = entered.0.borrow_mut();
            // The newest of its own: scopes need not be dropped in reverse order.
            let own = entered.iter().rposition(|stream| stream.id() == self.stream.id());
            own.map(|own| entered.remove(own))
        });
        drop(left);
    }
}

impl CudaStream {
    /// Makes it the [current stream](CudaDevice::current_stream) of this thread, for its device, until the
    /// result is dropped. In the destructor of a thread-local variable it may have no effect.
    pub fn enter(&self) -> StreamScope {
        let _ = ENTERED.try_with(|entered| entered.0.borrow_mut().push(self.clone()));
        StreamScope { stream: self.clone(), this_thread: PhantomData }
    }
}

impl CudaDevice {
    /// This thread's current stream: of those [entered](CudaStream::enter) the newest on this device, else
    /// the null stream.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn current_stream(&self) -> Result<CudaStream, BackendError> {
        let newest = |entered: &Entered| {
            let entered = entered.0.borrow();
            entered.iter().rfind(|stream| stream.device() == self.id()).cloned()
        };
        ENTERED.try_with(newest).ok().flatten().map_or_else(|| self.null_stream(), Ok)
    }
}
