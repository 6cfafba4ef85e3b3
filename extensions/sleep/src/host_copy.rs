//! Host memory that holds a copy of device memory.

use crate::error::Error;
use crate::offload::Offload;
use vrampool::backend::spi::reserve;
use vrampool::backend::{AllocationRequest, Capabilities, logging};
use vrampool::{Backend, BackendError, Memory, Placement};

/// Host memory for a copy of device memory, as [`save_contents`](crate::save_contents) fills it.
#[derive(Debug)]
pub struct HostCopy<B: Backend> {
    pub(super) place: Place<B>,
}

#[derive(Debug)]
pub(super) enum Place<B: Backend> {
    Pinned(B::Memory),
    Pageable(Vec<u8>),
}

/// Whether there is pinned memory that is not the device's own.
pub(super) fn can_pin<B: Backend>(device: &B) -> bool {
    let properties = device.properties();
    properties.capabilities.contains(Capabilities::HOST_VISIBLE) && !properties.is_integrated()
}

impl<B: Backend> HostCopy<B> {
    /// Allocates host memory: pinned with [`Offload::Pinned`], as far as the device has any, otherwise pageable. Its
    /// contents are undefined.
    ///
    /// # Errors
    /// [`Error::HostMemory`] if there is not enough; [`Error::Arena`] if the device fails.
    pub fn new(device: &B, bytes: u64, offload: Offload) -> Result<Self, Error> {
        Self::with(device, bytes, &mut (offload == Offload::Pinned && can_pin(device)))
    }

    /// As [`new`](Self::new); no pinned memory any more once it has run out.
    pub(super) fn with(device: &B, bytes: u64, pins: &mut bool) -> Result<Self, Error> {
        if *pins {
            match device.allocate(&AllocationRequest::new(bytes, Placement::HostVisible)) {
                Ok(memory) => return Ok(Self { place: Place::Pinned(memory) }),
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
        Ok(Self { place: Place::Pageable(memory) })
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.place {
            Place::Pinned(memory) => memory.len(),
            Place::Pageable(bytes) => bytes.len() as u64,
        }
    }

    /// Returns the bytes in place, without a copy.
    ///
    /// # Errors
    /// As [`Backend::mapped`].
    pub fn as_slice(&mut self, device: &B) -> Result<&[u8], BackendError> {
        match &mut self.place {
            Place::Pinned(memory) => device.mapped(memory),
            Place::Pageable(bytes) => Ok(bytes),
        }
    }

    pub(super) fn is_pinned(&self) -> bool {
        matches!(self.place, Place::Pinned(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vrampool::host::HostDevice;

    #[test]
    fn a_backup_that_the_host_has_no_memory_for_is_no_lack_of_the_devices() {
        let copy = HostCopy::with(&HostDevice::new(), 1 << 60, &mut false);
        let error = copy.expect_err("more than there is");
        assert!(matches!(error, Error::HostMemory { requested_bytes } if requested_bytes == 1 << 60));
        assert!(!error.is_out_of_memory(), "{error}");
    }
}
