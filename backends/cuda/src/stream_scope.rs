//! The current stream of a thread: the default for work without an explicit stream.

use crate::device::CudaDevice;
use crate::stream::CudaStream;
use std::cell::RefCell;
use std::marker::PhantomData;
use vrampool_backend::{Backend, BackendError, Stream};

thread_local! {
    static ENTERED: RefCell<Vec<CudaStream>> = const { RefCell::new(Vec::new()) };
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
        let left = ENTERED.with_borrow_mut(|entered| {
            // The newest of its own: scopes need not be dropped in reverse order.
            let own = entered.iter().rposition(|stream| stream.id() == self.stream.id());
            own.map(|own| entered.remove(own))
        });
        drop(left);
    }
}

impl CudaStream {
    /// Makes it the [current stream](CudaDevice::current_stream) of this thread, for its device, until the
    /// result is dropped.
    pub fn enter(&self) -> StreamScope {
        ENTERED.with_borrow_mut(|entered| entered.push(self.clone()));
        StreamScope { stream: self.clone(), this_thread: PhantomData }
    }
}

impl CudaDevice {
    /// This thread's current stream: of those [entered](CudaStream::enter) the newest on this device, else
    /// the null stream.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn current_stream(&self) -> Result<CudaStream, BackendError> {
        let entered = ENTERED
            .with_borrow(|entered| entered.iter().rfind(|stream| stream.device() == self.id()).cloned());
        entered.map_or_else(|| self.null_stream(), Ok)
    }
}
