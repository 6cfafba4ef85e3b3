//! Host memory that holds a copy of device memory.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use vrampool_backend::spi::reserve;
use vrampool_backend::{
    AllocationRequest, Backend, BackendError, Capabilities, Memory, Placement, Region, RegionMut, logging,
};

/// Host memory with contents.
#[derive(Debug)]
pub(crate) enum Stored<B: Backend> {
    Pinned(B::Memory),
    Pageable(Vec<u8>),
}

/// Whether there is pinned memory that is not the device's own.
pub(crate) fn can_pin<B: Backend>(device: &B) -> bool {
    let properties = device.properties();
    properties.capabilities.contains(Capabilities::HOST_VISIBLE) && !properties.is_integrated()
}

/// Enqueues copies on a stream of their own, and waits until they are done: also for those before one that
/// fails or panics, so that whatever is done about that is not in their way.
pub(crate) fn on_a_stream<B: Backend, E: From<BackendError>>(
    device: &B,
    enqueue: impl FnOnce(&B::Stream) -> Result<(), E>,
) -> Result<(), E> {
    let stream = device.create_stream()?;
    let enqueue = AssertUnwindSafe(|| enqueue(&stream).and_then(|()| Ok(device.synchronize(&stream)?)));
    let done = catch_unwind(enqueue);
    if !matches!(done, Ok(Ok(()))) {
        // What went wrong first says more.
        let _ = catch_unwind(AssertUnwindSafe(|| device.synchronize(&stream)));
    }
    done.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Makes `memory` so many zeros, or leaves it empty where the host has no room for them.
pub(crate) fn zero(memory: &mut Vec<u8>, bytes: u64) -> Result<(), BackendError> {
    memory.clear();
    let length = usize::try_from(bytes).map_err(|_| BackendError::out_of_memory(bytes, None))?;
    reserve(memory, length)?;
    memory.resize(length, 0);
    Ok(())
}

impl<B: Backend> Stored<B> {
    /// Host memory; no pinned one any more once that has run out.
    pub(crate) fn new(device: &B, bytes: u64, pins: &mut bool) -> Result<Self, BackendError> {
        if *pins {
            match device.allocate(&AllocationRequest::new(bytes, Placement::HostVisible)) {
                Ok(memory) => return Ok(Self::Pinned(memory)),
                Err(error) if !error.is_out_of_memory() => return Err(error),
                Err(error) => {
                    logging::warn!(
                        "backups on {}: in pageable memory, for want of pinned: {error}",
                        device.id()
                    );
                    *pins = false;
                }
            }
        }
        let mut memory = Vec::new();
        zero(&mut memory, bytes)?;
        Ok(Self::Pageable(memory))
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Pinned(memory) => memory.len(),
            Self::Pageable(bytes) => bytes.len() as u64,
        }
    }

    /// Copies a region to its bytes from `at` on, in order on `stream`.
    pub(crate) fn save(
        &mut self,
        device: &B,
        stream: &B::Stream,
        source: Region<'_, B::Memory>,
        at: u64,
    ) -> Result<(), BackendError> {
        let bytes = source.len();
        match self {
            Self::Pinned(memory) => device.copy(stream, source, RegionMut::new(memory, at, bytes, stream)?),
            Self::Pageable(memory) => {
                device.download(stream, source, &mut memory[at as usize..][..bytes as usize])
            }
        }
    }

    /// Copies its bytes from `at` on to a region, in order on `stream`.
    pub(crate) fn restore(
        &self,
        device: &B,
        stream: &B::Stream,
        at: u64,
        destination: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError> {
        let bytes = destination.len();
        match self {
            Self::Pinned(memory) => device.copy(stream, Region::new(memory, at, bytes, stream)?, destination),
            Self::Pageable(memory) => {
                device.upload(stream, &memory[at as usize..][..bytes as usize], destination)
            }
        }
    }
}
