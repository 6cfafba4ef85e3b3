//! The driver pools of all devices.

use crate::device::CudaDevice;
use crate::driver_pool::{DriverPool, PoolHandle};
use crate::listing;
use crate::memory::CudaMemory;
use crate::pool_error::DriverPoolError;
use crate::stream::CudaStream;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, Hook, Stream};

/// One [`DriverPool`] for each device that the process sees. A stream, or a device, says which.
#[derive(Debug, Clone)]
pub struct DriverPools {
    pools: Vec<DriverPool>,
}

impl DriverPools {
    /// The same kind of pool on every device.
    ///
    /// # Errors
    /// As [`CudaDevice::open`] and [`DriverPool::new`].
    pub fn new(handle: PoolHandle) -> Result<Self, BackendError> {
        let devices = listing::list()?;
        Self::per_device(&vec![handle; devices.len()])
    }

    /// One kind for each device, in the devices' order.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when there are more or fewer than devices; else as
    /// [`new`](Self::new).
    pub fn per_device(handles: &[PoolHandle]) -> Result<Self, BackendError> {
        let devices = listing::list()?.len();
        if handles.len() != devices {
            let reason = format!("there are {} of them for {devices} devices", handles.len());
            return Err(BackendError::invalid("pool handles", reason));
        }
        let pools = handles
            .iter()
            .enumerate()
            .map(|(ordinal, &handle)| DriverPool::new(&CudaDevice::open(ordinal)?, handle));
        Ok(Self { pools: pools.collect::<Result<_, _>>()? })
    }

    /// The same pools, each of which calls `hook`, as [`DriverPool::hook`].
    ///
    /// # Errors
    /// As [`DriverPool::hook`].
    pub fn hook(self, hook: impl Hook + 'static) -> Result<Self, BackendError> {
        let hook = Arc::new(hook);
        let hooked = self.pools.into_iter().map(|pool| pool.hook(Arc::clone(&hook)));
        Ok(Self { pools: hooked.collect::<Result<_, _>>()? })
    }

    /// The pools, in the devices' order.
    #[must_use]
    pub fn pools(&self) -> &[DriverPool] {
        &self.pools
    }

    /// The pool on a device, if it is one of theirs.
    #[must_use]
    pub fn on(&self, device: &CudaDevice) -> Option<&DriverPool> {
        self.pools.iter().find(|pool| pool.device().id() == device.id())
    }

    /// Memory of the device of `stream`, in its order.
    ///
    /// # Errors
    /// As [`DriverPool::allocate_on`].
    #[track_caller]
    pub fn allocate_on(&self, bytes: u64, stream: &CudaStream) -> Result<CudaMemory, DriverPoolError> {
        let pool = self.pools.iter().find(|pool| pool.device().id() == stream.device());
        let pool = pool.ok_or_else(|| {
            BackendError::invalid("stream", format!("no pool is on its device {}", stream.device()))
        })?;
        pool.allocate_on(bytes, stream)
    }
}
