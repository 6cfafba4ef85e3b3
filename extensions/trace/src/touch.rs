//! Writing and verifying memory during a replay, which detects memory that is reused too early.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool::Buffer;
use vrampool::Error;
use vrampool::backend::AllocationRequest;
use vrampool::backend::{Backend, BackendError, Memory, MemoryKind, Region, RegionMut};

/// Writes memory and finds out, on the device, whether it stayed as it was written.
///
/// Nothing waits for the host: each call enqueues work on `stream` and returns.
pub trait Touch<B: Backend>: fmt::Debug + Sync {
    /// Writes `bytes` so that they show which `seed` wrote them, and where.
    ///
    /// # Errors
    /// Errors that the device reports.
    fn write(
        &self,
        stream: &B::Stream,
        bytes: RegionMut<'_, B::Memory>,
        seed: u64,
    ) -> Result<(), BackendError>;

    /// Adds to the little-endian `u64` in `count` how many of `bytes` are not as [`write`](Self::write)
    /// writes them.
    ///
    /// # Errors
    /// Errors that the device reports.
    fn verify(
        &self,
        stream: &B::Stream,
        bytes: Region<'_, B::Memory>,
        seed: u64,
        count: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;
}

/// The test kernels of a backend.
macro_rules! touch_by {
    ($Kernels:ty: $Device:ty) => {
        impl Touch<$Device> for $Kernels {
            fn write(
                &self,
                stream: &<$Device as Backend>::Stream,
                bytes: RegionMut<'_, <$Device as Backend>::Memory>,
                seed: u64,
            ) -> Result<(), BackendError> {
                self.write_pattern(stream, bytes, seed)
            }

            fn verify(
                &self,
                stream: &<$Device as Backend>::Stream,
                bytes: Region<'_, <$Device as Backend>::Memory>,
                seed: u64,
                count: RegionMut<'_, <$Device as Backend>::Memory>,
            ) -> Result<(), BackendError> {
                self.count_mismatches(stream, bytes, seed, count)
            }
        }
    };
}

touch_by!(vrampool::any::AnyTestKernels: vrampool::any::AnyDevice);
touch_by!(vrampool::host::TestKernels: vrampool::host::HostDevice);
#[cfg(feature = "cuda")]
touch_by!(vrampool::cuda::TestKernels: vrampool::cuda::CudaDevice);
#[cfg(feature = "opencl")]
touch_by!(vrampool::opencl::TestKernels: vrampool::opencl::OpenClDevice);
#[cfg(feature = "wgpu")]
touch_by!(vrampool::wgpu::TestKernels: vrampool::wgpu::WgpuDevice);

/// Number of replays with kernels so far, in this process.
static REPLAYS: AtomicU64 = AtomicU64::new(0);

/// Bytes of a count.
const COUNT: u64 = size_of::<u64>() as u64;

/// The writers of one worker's buffers, and the wrong bytes that were found.
#[derive(Debug)]
pub(crate) struct Verifier<'a, B: Backend> {
    touch: &'a dyn Touch<B>,
    device: B,
    /// A count for each stream, so that streams need not wait for each other.
    counts: Vec<B::Memory>,
    /// By slot: the seed, and the stream that wrote.
    writers: Vec<(u64, u16)>,
    next_seed: u64,
}

impl<'a, B: Backend> Verifier<'a, B> {
    /// For so many slots.
    pub(crate) fn new(
        touch: &'a dyn Touch<B>,
        device: &B,
        streams: &[B::Stream],
        slots: usize,
    ) -> Result<Self, Error> {
        let bytes = COUNT.next_multiple_of(device.properties().copy_granularity.max(1));
        let counts = streams.iter().map(|stream| {
            let memory = device.allocate(&AllocationRequest::new(bytes, MemoryKind::default()))?;
            device.fill(stream, RegionMut::whole(&memory, stream), 0)?;
            Ok(memory)
        });
        let counts = counts.collect::<Result<_, Error>>()?;
        Ok(Self {
            touch,
            device: device.clone(),
            counts,
            writers: vec![(0, 0); slots],
            // No two replays of the process write with the same seed. Relaxed: a number that publishes no other data.
            next_seed: REPLAYS.fetch_add(1, Relaxed) << 48,
        })
    }

    /// Writes a buffer that `stream` got.
    pub(crate) fn write(
        &mut self,
        slot: usize,
        buffer: &mut Buffer<B>,
        number: u16,
        stream: &B::Stream,
    ) -> Result<(), Error> {
        self.writers[slot] = (self.next_seed, number);
        self.next_seed += 1;
        if buffer.is_empty() {
            return Ok(());
        }
        Ok(self.touch.write(stream, buffer.on_mut(stream)?, self.writers[slot].0)?)
    }

    /// Returns the stream that wrote the buffer in a slot.
    pub(crate) fn writer(&self, slot: usize) -> u16 {
        self.writers[slot].1
    }

    /// Compares a buffer on `stream`, the last that uses it.
    pub(crate) fn verify(
        &self,
        slot: usize,
        buffer: &Buffer<B>,
        number: u16,
        stream: &B::Stream,
    ) -> Result<(), Error> {
        if buffer.is_empty() {
            return Ok(());
        }
        let count = RegionMut::new(&self.counts[usize::from(number)], 0, COUNT, stream)?;
        Ok(self.touch.verify(stream, buffer.on(stream)?, self.writers[slot].0, count)?)
    }

    /// Waits for all enqueued work, and returns how many bytes were wrong since the last call.
    pub(crate) fn finish(&self, streams: &[B::Stream]) -> Result<u64, Error> {
        let mut wrong = 0u64;
        for (count, stream) in self.counts.iter().zip(streams) {
            let mut bytes = vec![0; count.len() as usize];
            self.device.download(stream, Region::whole(count, stream), &mut bytes)?;
            self.device.fill(stream, RegionMut::whole(count, stream), 0)?;
            let number = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            wrong = wrong.saturating_add(number);
        }
        Ok(wrong)
    }
}
