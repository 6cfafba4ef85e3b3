//! The simulated driver. Tests of other crates include this file.

use std::sync::{Mutex, MutexGuard, PoisonError};
use vrampool::cuda::CudaDevice;
use vrampool_cuda_simulator_control::Simulator;

/// Faults and ignored waits are the whole process's, so the tests run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// The first device of the simulated driver.
pub(crate) struct Simulated {
    pub(crate) simulator: &'static Simulator,
    pub(crate) device: CudaDevice,
    pub(crate) _alone: MutexGuard<'static, ()>,
}

impl Simulated {
    pub(crate) fn open() -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let simulator = Simulator::or_skip()?;
        // Small pages keep the scenes short.
        simulator.set_granularity(64 << 10);
        let device = CudaDevice::open(0).expect("the simulated driver has a device");
        Some(Self { simulator, device, _alone: alone })
    }
}
