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
    use crate::timing::allocator::driver;
    use vrampool::cuda::{CudaDevice, DriverPool, PoolHandle};
    use vrampool::{Backend, BackendError, Placement};

    /// Managed memory in all: more of it can hang a card.
    const MOST_MANAGED: u64 = 64 << 20;

    impl Rivals for CudaDevice {
        fn time_rivals(
            &self,
            workload: Workload,
            effort: Effort,
        ) -> Result<Vec<(&'static str, Figures)>, Error> {
            // As in a program that works with the device: the calls need not switch the current context.
            let bound = self.context().bind_to_thread();
            bound.map_err(|error| BackendError::invalid("thread", error.to_string()))?;
            let mut figures = Vec::new();
            for (name, threshold) in [("async", u64::MAX), ("async_default", 0)] {
                let (pool, stream) = (DriverPool::new(self, PoolHandle::Created)?, self.create_stream()?);
                pool.set_release_threshold(threshold)?;
                figures.push((name, workload.run(|bytes| pool.allocate_on(bytes, &stream), effort)?));
            }
            if workload.most_bytes() <= MOST_MANAGED {
                figures.push(("managed", workload.run(driver(self, Placement::Managed), effort)?));
            }
            Ok(figures)
        }
    }
}
