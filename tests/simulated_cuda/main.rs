//! The pool on the simulated CUDA driver: each driver call fails once, each wait is left out once, and random
//! work on two devices is free of races. Skipped, with a line that says so, on another driver and without
//! one.
#![cfg(feature = "cuda")]

mod control;
mod detector;
mod faults;
mod green_contexts;
mod ignored_waits;
mod random_work;
mod scenes;
mod several_devices;

use std::sync::{Mutex, MutexGuard, PoisonError};
use vrampool::cuda::CudaDevice;
use vrampool_cuda_simulator_control::Simulator;

/// Faults and ignored waits are the whole process's, so the tests run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// The first device of the simulated driver.
struct Simulated {
    simulator: &'static Simulator,
    device: CudaDevice,
    _alone: MutexGuard<'static, ()>,
}

impl Simulated {
    fn open() -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let simulator = Simulator::or_skip()?;
        // Small pages keep the scenes short.
        simulator.set_granularity(64 << 10);
        let device = CudaDevice::open(0).expect("the simulated driver has a device");
        Some(Self { simulator, device, _alone: alone })
    }
}
