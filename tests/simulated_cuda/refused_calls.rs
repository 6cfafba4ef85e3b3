//! Calls that the driver refuses outside of scenes.

use crate::simulated::Simulated;
use vrampool::backend::AllocationRequest;
use vrampool::cuda::cudarc::driver::sys;
use vrampool::{Backend, Placement};
use vrampool_cuda_simulator_control::UNKNOWN;

/// A thread is under its own mode of captures again, whatever of the way there and back is refused.
#[test]
fn a_mode_that_was_not_changed_is_not_changed_back() {
    let Some(simulated) = Simulated::open() else { return };
    let exchange = "cuThreadExchangeStreamCaptureMode";
    let global = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    simulated.simulator.fail(exchange, 1, UNKNOWN).expect("a name");
    let calls = simulated.simulator.calls_of(exchange).expect("a name");
    drop(simulated.device.allocate(&AllocationRequest::new(4096, Placement::Device)).expect("memory"));
    assert!(simulated.simulator.calls_of(exchange).expect("a name") > calls);
    let mut mode = global;
    // SAFETY: the driver is initialised; the call swaps `mode`, which lives here, with the thread's.
    let code = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    assert_eq!((code, mode), (sys::CUresult::CUDA_SUCCESS, global));
}

#[test]
fn an_error_without_a_name_or_a_text_names_its_code() {
    let Some(simulated) = Simulated::open() else { return };
    let simulator = simulated.simulator;
    for function in ["cuGetErrorName", "cuGetErrorString", "cuMemGetInfo_v2"] {
        simulator.fail(function, 1, UNKNOWN).expect("a name");
    }
    let error = simulated.device.memory_info().expect_err("it fails once");
    assert!(error.to_string().contains("999"), "{error}");
}
