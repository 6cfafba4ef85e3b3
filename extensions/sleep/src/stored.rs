//! Host memory that holds a copy of device memory.

use crate::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use vrampool::backend::spi::{reserve, wait_out};
use vrampool::backend::{AllocationRequest, Capabilities, logging};
use vrampool::{Backend, BackendError, Memory, Placement, Region, RegionMut};

/// Host memory with contents.
#[derive(Debug)]
pub(super) enum Stored<B: Backend> {
    Pinned(B::Memory),
    Pageable(Vec<u8>),
}

/// Whether there is pinned memory that is not the device's own.
pub(super) fn can_pin<B: Backend>(device: &B) -> bool {
    let properties = device.properties();
    properties.capabilities.contains(Capabilities::HOST_VISIBLE) && !properties.is_integrated()
}

/// Enqueues copies on a stream of their own, and waits until they are complete: also for those before one that
/// fails or panics, so that the caller may unmap or reuse their memory.
pub(super) fn on_a_stream<B: Backend, E: From<BackendError>>(
    device: &B,
    enqueue: impl FnOnce(&B::Stream) -> Result<(), E>,
) -> Result<(), E> {
    let stream = device.create_stream()?;
    let enqueue = AssertUnwindSafe(|| enqueue(&stream).and_then(|()| Ok(device.synchronize(&stream)?)));
    let done = catch_unwind(enqueue);
    if !matches!(done, Ok(Ok(()))) {
        // The first failure is reported.
        let _ = catch_unwind(AssertUnwindSafe(|| wait_out(device, &stream)));
    }
    done.unwrap_or_else(|panic| resume_unwind(panic))
}

impl<B: Backend> Stored<B> {
    /// Host memory; no pinned one any more once that has run out.
    pub(super) fn new(device: &B, bytes: u64, pins: &mut bool) -> Result<Self, Error> {
        if *pins {
            match device.allocate(&AllocationRequest::new(bytes, Placement::HostVisible)) {
                Ok(memory) => return Ok(Self::Pinned(memory)),
                Err(error) if !error.is_out_of_memory() => return Err(error.into()),
                Err(error) => {
                    logging::warn!(
                        "backups on {}: in pageable memory, because pinned memory is exhausted: {error}",
                        device.id()
                    );
                    *pins = false;
                }
            }
        }
        let short = || Error::HostMemory { requested_bytes: bytes };
        let length = usize::try_from(bytes).map_err(|_| short())?;
        let mut memory = Vec::new();
        reserve(&mut memory, length).map_err(|_| short())?;
        memory.resize(length, 0);
        Ok(Self::Pageable(memory))
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Pinned(memory) => memory.len(),
            Self::Pageable(bytes) => bytes.len() as u64,
        }
    }

    /// Copies a region to its bytes from `at` on, in order on `stream`.
    pub(super) fn save(
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
    pub(super) fn restore(
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

#[cfg(test)]
mod tests {
    use super::*;
    use vrampool::host::HostDevice;

    #[test]
    fn a_backup_that_the_host_has_no_memory_for_is_no_lack_of_the_devices() {
        let stored = Stored::new(&HostDevice::new(), 1 << 60, &mut false);
        let error = stored.expect_err("more than there is");
        assert!(matches!(error, Error::HostMemory { requested_bytes } if requested_bytes == 1 << 60));
        assert!(!error.is_out_of_memory(), "{error}");
    }
}
