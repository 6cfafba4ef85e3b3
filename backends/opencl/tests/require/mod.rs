//! The devices that a test needs and a machine may lack.

use vrampool_opencl::{OpenClDevice, list};

/// Every device. A test without one is skipped with a line that says so, and fails where `VRAMPOOL_REQUIRE`,
/// a list separated by commas, names `opencl`.
pub(crate) fn devices() -> Vec<OpenClDevice> {
    match list() {
        Ok(devices) => devices
            .iter()
            .map(|device| OpenClDevice::open(device.ordinal).expect("a device that is listed opens"))
            .collect(),
        Err(error) if error.is_unavailable() => {
            let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
            assert!(
                !required.split(',').any(|required| required == "opencl"),
                "VRAMPOOL_REQUIRE names opencl, and {error}"
            );
            eprintln!("skipped: {error}");
            Vec::new()
        }
        Err(error) => panic!("there are devices, and they are not listed: {error}"),
    }
}
