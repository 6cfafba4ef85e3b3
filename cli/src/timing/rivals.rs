//! Other allocators of a device's driver, for comparison.

use super::clock::{Effort, Figures};
use super::workload::Workload;
use vrampool::host::HostDevice;
use vrampool::{Backend, Error};

/// Allocators of a driver's own, each timed at a workload.
pub(crate) trait Rivals: Backend {
    /// Their names and figures; those that cannot be put through it are left out.
    fn time_rivals(&self, workload: Workload, effort: Effort) -> Result<Vec<(&'static str, Figures)>, Error> {
        let _ = (workload, effort);
        Ok(Vec::new())
    }
}

impl Rivals for HostDevice {}
#[cfg(feature = "opencl")]
impl Rivals for vrampool::opencl::OpenClDevice {}
#[cfg(feature = "wgpu")]
impl Rivals for vrampool::wgpu::WgpuDevice {}

#[cfg(feature = "cuda")]
mod cuda {
    use super::{Effort, Error, Figures, Rivals, Workload};
    use crate::timing::allocator::{Allocator, Driver};
    use vrampool::cuda::{CudaDevice, CudaMemory, CudaStream, DriverPool, PoolHandle};
    use vrampool::{Backend, BackendError, Placement};

    /// Managed memory in all: more of it can hang a card.
    const MOST_MANAGED: u64 = 64 << 20;

    impl Rivals for CudaDevice {
        fn time_rivals(
            &self,
            workload: Workload,
            effort: Effort,
        ) -> Result<Vec<(&'static str, Figures)>, Error> {
            let mut figures = Vec::new();
            for (name, threshold) in [("async", u64::MAX), ("async_default", 0)] {
                let mut pool = Async::new(self, threshold)?;
                figures.push((name, workload.run(&mut pool, effort)?));
            }
            if workload.most_bytes() <= MOST_MANAGED {
                let mut managed = Driver::of_kind(self, Placement::Managed.into());
                figures.push(("managed", workload.run(&mut managed, effort)?));
            }
            Ok(figures)
        }
    }

    /// A pool of the driver's, made for this.
    #[derive(Debug)]
    struct Async {
        pool: DriverPool,
        stream: CudaStream,
    }

    impl Async {
        fn new(device: &CudaDevice, threshold: u64) -> Result<Self, BackendError> {
            // As in a program that works with the device: the calls need not switch the current context.
            let bound = device.context().bind_to_thread();
            bound.map_err(|error| BackendError::invalid("thread", error.to_string()))?;
            let pool = DriverPool::new(device, PoolHandle::Created)?;
            pool.set_release_threshold(threshold)?;
            Ok(Self { pool, stream: device.create_stream()? })
        }
    }

    impl Allocator for Async {
        type Block = CudaMemory;
        type Error = BackendError;

        #[inline]
        fn allocate(&mut self, bytes: u64) -> Result<CudaMemory, BackendError> {
            self.pool.allocate_on(bytes, &self.stream)
        }

        #[inline]
        fn free(&mut self, memory: CudaMemory) -> Result<(), BackendError> {
            drop(memory);
            Ok(())
        }
    }
}
