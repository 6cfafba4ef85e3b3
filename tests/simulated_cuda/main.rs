//! The pool on the simulated CUDA driver: each driver call fails once, each wait is left out once, and random
//! work on two devices is free of races. Skipped, with a line that says so, on another driver and without
//! one.
#![cfg(feature = "cuda")]

mod control;
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
        let Some(simulator) = Simulator::loaded() else {
            let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
            let is_required = required.split(',').any(|name| name == "cuda-simulator");
            assert!(
                !is_required,
                "VRAMPOOL_REQUIRE names cuda-simulator, and the simulated driver is not loaded"
            );
            eprintln!(
                "skipped: the simulated CUDA driver is not loaded (backends/cuda/simulator/run.sh loads it)"
            );
            return None;
        };
        // Small pages keep the scenes short.
        simulator.set_granularity(64 << 10);
        let device = CudaDevice::open(0).expect("the simulated driver has a device");
        Some(Self { simulator, device, _alone: alone })
    }
}
