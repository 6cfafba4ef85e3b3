//! The kernels for tests, as this backend alone has them; for all backends: `tests/devices/touch.rs`.

use crate::{fill, first_device, memory, read};
use vrampool_test_support::pattern;
use vrampool_wgpu::{Backend, BackendError, RegionMut, TestKernels, WgpuDevice};

#[test]
fn more_dispatches_than_one_submission_has() {
    let Some(device) = first_device() else { return };
    let stream = device.create_stream().expect("a stream");
    let kernels = TestKernels::load(&device).expect("kernels");
    let memory = memory(&device);
    fill(&device, &stream, &memory, 0);
    let part = |range| RegionMut::whole(&memory, &stream).slice(range).expect("a region");
    let wrong = pattern(5, 4).iter().filter(|&&byte| byte != 0).count() as u64;
    for _ in 0..1000 {
        let (bytes, count) = (part(0..4).as_region(), part(16..24));
        kernels.count_mismatches(&stream, bytes, 5, count).expect("queued");
    }
    let found = u64::from_le_bytes(read(&device, &stream, &memory)[16..24].try_into().expect("8 bytes"));
    assert!(wrong > 0 && found == 1000 * wrong, "{found}");
}

#[test]
fn words_that_cannot_be_kept_busy_are_refused() {
    let Some(device) = first_device() else { return };
    let stream = device.create_stream().expect("a stream");
    let kernels = TestKernels::load(&device).expect("kernels");
    let memory = memory(&device);
    let foreign = WgpuDevice::open(0).expect("a device").create_stream().expect("a stream");
    let part = |range| RegionMut::whole(&memory, &stream).slice(range).expect("a region");
    for refused in [kernels.occupy(&stream, part(1..9), 1), kernels.occupy(&foreign, part(0..8), 1)] {
        let error = refused.expect_err("it does not fit");
        assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
    }
    device.synchronize(&stream).expect("no fault");
}
