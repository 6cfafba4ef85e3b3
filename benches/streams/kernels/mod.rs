//! Kernels of a given length that write a pattern, keep their stream busy, and verify what they read and wrote.

#[cfg(feature = "cuda")]
mod cuda;
mod host;
#[cfg(feature = "opencl")]
mod opencl;

#[cfg(feature = "cuda")]
pub(crate) use cuda::CudaKernels;
pub(crate) use host::HostKernels;
#[cfg(feature = "opencl")]
pub(crate) use opencl::OpenClKernels;

use std::ops::Range;
use std::time::Duration;
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, BackendError, Placement, Region, RegionMut};

/// Bytes at each end of a block that kernels write and verify: all of it would take memory's time.
const EDGE_BYTES: u64 = 4096;
/// Of the count of wrong bytes, and of what a busy kernel writes.
const COUNT_BYTES: u64 = 8;

/// A region and the seed of its contents.
pub(crate) type Input<'a, B> = (Region<'a, <B as Backend>::Memory>, u64);
pub(crate) type Output<'a, B> = (RegionMut<'a, <B as Backend>::Memory>, u64);

pub(crate) trait Kernels<B: Backend> {
    /// Queues a kernel that writes the output's pattern, keeps the stream busy for `length`, and then counts
    /// the bytes of input and output that differ from their patterns.
    fn launch(
        &self,
        lane: &Lane<B>,
        length: Duration,
        input: Option<Input<'_, B>>,
        output: Output<'_, B>,
    ) -> Result<(), BackendError>;

    /// Wrong bytes that are not counted on the device so far.
    fn wrong_bytes(&self) -> u64 {
        0
    }
}

/// A stream, and memory for what its kernels count.
#[derive(Debug)]
pub(crate) struct Lane<B: Backend> {
    pub(crate) stream: B::Stream,
    memory: B::Memory,
}

impl<B: Backend> Lane<B> {
    pub(crate) fn new(device: &B) -> Result<Self, BackendError> {
        let stream = device.create_stream()?;
        let memory = device.allocate(&AllocationRequest::new(2 * COUNT_BYTES, Placement::Device))?;
        device.fill(&stream, RegionMut::whole(&memory, &stream), 0)?;
        Ok(Self { stream, memory })
    }

    /// Waits for the stream, and returns what its kernels counted.
    pub(crate) fn wrong_bytes(&self, device: &B) -> Result<u64, BackendError> {
        let mut bytes = [0; COUNT_BYTES as usize];
        device.download(
            &self.stream,
            Region::new(&self.memory, 0, COUNT_BYTES, &self.stream)?,
            &mut bytes,
        )?;
        Ok(u64::from_ne_bytes(bytes))
    }

    #[cfg(any(feature = "cuda", feature = "opencl"))]
    fn count(&self) -> Result<RegionMut<'_, B::Memory>, BackendError> {
        RegionMut::new(&self.memory, 0, COUNT_BYTES, &self.stream)
    }

    #[cfg(feature = "opencl")]
    fn sink(&self) -> Result<RegionMut<'_, B::Memory>, BackendError> {
        RegionMut::new(&self.memory, COUNT_BYTES, COUNT_BYTES, &self.stream)
    }
}

/// The ends of a block of so many bytes.
fn edges(bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let edge = EDGE_BYTES.min(bytes / 2);
    [0..edge, bytes - edge..bytes].into_iter()
}
