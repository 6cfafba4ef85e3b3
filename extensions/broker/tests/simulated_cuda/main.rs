//! A broker and a stager on the simulated CUDA driver: each driver call fails once. Skipped, with a line that says so,
//! on another driver and without one.

#[path = "../../../../tests/simulated_cuda/each_call.rs"]
mod each_call;
#[allow(dead_code, reason = "other tests use all of it")]
#[path = "../../../../tests/simulated_cuda/scene.rs"]
mod scene;
mod scenes;
#[path = "../../../../tests/simulated_cuda/simulated.rs"]
mod simulated;

use simulated::Simulated;

#[test]
fn a_call_that_fails_loses_nothing() {
    let Some(simulated) = Simulated::open() else { return };
    let faults = each_call::fail_each_call(&simulated, &scenes::SCENES);
    assert!(faults > 400, "{faults}");
}
