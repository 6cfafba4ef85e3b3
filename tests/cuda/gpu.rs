//! The device that a test needs and a machine may lack.

use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::{Backend, Region, RegionMut};

/// The first GPU. A test without one is skipped with a line that says so, and fails where `VRAMPOOL_REQUIRE`,
/// a list separated by commas, names `cuda`.
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

#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) fn streams<const N: usize>(device: &CudaDevice) -> [CudaStream; N] {
    std::array::from_fn(|_| device.create_stream().expect("a stream"))
}

/// A count of mismatches, on the device.
#[allow(dead_code, reason = "each test file uses a part of it")]
#[derive(Debug)]
pub(crate) struct Count {
    device: CudaDevice,
    pub(crate) memory: vrampool::cuda::CudaMemory,
}

#[allow(dead_code, reason = "each test file uses a part of it")]
impl Count {
    pub(crate) fn new(device: &CudaDevice, stream: &CudaStream) -> Self {
        let memory = device.allocate(8, vrampool::Placement::Device.into()).expect("memory");
        device.fill(stream, RegionMut::whole(&memory, stream), 0).expect("queued");
        Self { device: device.clone(), memory }
    }

    pub(crate) fn on<'a>(&'a self, stream: &CudaStream) -> RegionMut<'a, vrampool::cuda::CudaMemory> {
        RegionMut::whole(&self.memory, stream)
    }

    /// Waits for `stream`.
    pub(crate) fn read(&self, stream: &CudaStream) -> u64 {
        let mut bytes = [0; 8];
        self.device.download(stream, Region::whole(&self.memory, stream), &mut bytes).expect("no fault");
        u64::from_le_bytes(bytes)
    }
}
