//! The device that a test needs and a machine may lack.

use vrampool_wgpu::WgpuDevice;

/// The first device. A test without one is skipped with a line that says so, and fails where
/// `VRAMPOOL_REQUIRE`, a list separated by commas, names `wgpu`.
pub(crate) fn device() -> Option<WgpuDevice> {
    match WgpuDevice::open(0) {
        Ok(device) => Some(device),
        Err(error) if error.is_unavailable() => {
            let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
            assert!(
                !required.split(',').any(|required| required == "wgpu"),
                "VRAMPOOL_REQUIRE names wgpu, and {error}"
            );
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("the device is there and does not open: {error}"),
    }
}
