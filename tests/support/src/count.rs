//! A mismatch counter in device memory.

use vrampool_backend::AllocationRequest;
use vrampool_backend::{Backend, Placement, Region, RegionMut};

/// A 64-bit mismatch counter that test kernels add to.
#[derive(Debug)]
pub struct Count<B: Backend> {
    device: B,
    memory: B::Memory,
}

impl<B: Backend> Count<B> {
    /// Allocates a counter and sets it to 0 on `stream`.
    #[must_use]
    pub fn new(device: &B, stream: &B::Stream) -> Self {
        let memory = device.allocate(&AllocationRequest::new(8, Placement::Device)).expect("memory");
        let count = Self { device: device.clone(), memory };
        device.fill(stream, count.on(stream), 0).expect("queued");
        count
    }

    /// Returns the counter as an operand of work on `stream`.
    #[must_use]
    pub fn on<'a>(&'a self, stream: &B::Stream) -> RegionMut<'a, B::Memory> {
        RegionMut::whole(&self.memory, stream)
    }

    /// Waits for `stream` and returns the count.
    #[must_use]
    pub fn read(&self, stream: &B::Stream) -> u64 {
        let mut bytes = [0; 8];
        self.device.download(stream, Region::whole(&self.memory, stream), &mut bytes).expect("no fault");
        u64::from_le_bytes(bytes)
    }
}
