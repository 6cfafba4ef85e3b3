//! A GPU is what the contract says.

use vrampool_backend::conformance;
use vrampool_cuda::CudaDevice;
use vrampool_test_support::require;

#[test]
fn a_gpu_conforms() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let report = conformance::check(&device).expect("conforms");
    assert!(report.skipped.is_empty(), "{report}");
}

#[test]
fn a_gpu_conforms_on_a_thread_that_never_saw_a_context_and_several_at_once() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| conformance::check(&device).expect("conforms"));
        }
    });
}

#[test]
fn memory_of_another_device_is_refused() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let Ok(other) = CudaDevice::open(1) else {
        vrampool_test_support::skipped("there is one device");
        return;
    };
    conformance::check_foreign(&device, &other).expect("they are");
    conformance::check_foreign(&other, &device).expect("they are");
}
