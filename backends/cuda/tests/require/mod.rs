//! The device that a test needs and a machine may lack.

use vrampool_cuda::CudaDevice;

/// The first device. A test without one is skipped with a line that says so, and fails where
/// `VRAMPOOL_REQUIRE`, a list separated by commas, names `cuda`.
pub(crate) fn device() -> Option<CudaDevice> {
    match CudaDevice::open(0) {
        Ok(device) => Some(device),
        Err(error) if error.is_unavailable() => {
            let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
            assert!(
                !required.split(',').any(|required| required == "cuda"),
                "VRAMPOOL_REQUIRE names cuda, and {error}"
            );
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("the device is there and does not open: {error}"),
    }
}
