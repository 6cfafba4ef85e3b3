//! The host as a device.

use crate::fault::{Call, Faults};
use crate::memory::HostMemory;
use crate::shared::DeviceCore;
use crate::stream::{HostEvent, HostStream};
use crate::worker::on_a_stream;
use crossbeam_channel::bounded;
use std::sync::Arc;
use vrampool_backend::spi::reserve;
use vrampool_backend::{
    AllocationRequest, Backend, BackendError, DeviceId, MemoryInfo, Properties, Region, RegionMut, arguments,
};
#[cfg(target_os = "linux")]
use vrampool_backend::{Capabilities, SharedHandles, VirtualMemory};

/// The host as a device. A clone is another handle to the same device; [`new`](Self::new) makes another
/// device.
///
/// Memory that is dropped under queued work is free when that work is done. An allocation for which there is
/// no room until then waits, as a GPU's driver does.
///
/// ```
/// use vrampool_host::{Backend, BackendError, HostDevice};
/// # fn main() -> Result<(), BackendError> {
/// let device = HostDevice::builder().memory_limit(1 << 20).build();
/// assert_eq!(device.memory_info()?.free_bytes, 1 << 20);
/// let other = HostDevice::new();
/// assert_ne!(device.id(), other.id());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct HostDevice {
    pub(crate) core: Arc<DeviceCore>,
}

impl HostDevice {
    pub(crate) fn of(core: DeviceCore) -> Self {
        Self { core: Arc::new(core) }
    }

    /// Its faults and the count of its calls.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.core.faults
    }

    /// How often work met a range that other work was using at that moment: 0 as long as every wait is there.
    #[must_use]
    pub fn races(&self) -> u64 {
        self.core.claims.races()
    }

    /// Changes how much memory there is in all, bytes, while it runs: memory runs out at this byte from now
    /// on.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.core.capacity.set_total(bytes);
    }

    #[cfg(target_os = "linux")]
    fn has(&self, capability: Capabilities) -> bool {
        self.core.properties.capabilities.contains(capability)
    }

    fn check_mapped(&self, memory: &HostMemory, offset: u64, len: usize) -> Result<(), BackendError> {
        self.core.faults.check(Call::Mapped)?;
        if !memory.is_of(&self.core) {
            return Err(BackendError::invalid("memory", "it is another device's"));
        }
        let range = arguments::check_range(offset, len as u64, vrampool_backend::Memory::len(memory))?;
        if memory.is_host_visible(&range) {
            return Ok(());
        }
        Err(BackendError::unsupported("mapping memory that is not host-visible"))
    }

    fn check_stream(&self, stream: &HostStream) -> Result<(), BackendError> {
        arguments::check_stream(stream, self.core.id)
    }
}

/// An empty copy with room for so many bytes, or the error that the host has no memory for it.
fn room_for(bytes: usize) -> Result<Vec<u8>, BackendError> {
    let mut copy = Vec::new();
    reserve(&mut copy, bytes)?;
    Ok(copy)
}

impl Backend for HostDevice {
    type Memory = HostMemory;
    type Stream = HostStream;
    type Event = HostEvent;

    fn id(&self) -> DeviceId {
        self.core.id
    }

    fn properties(&self) -> &Properties {
        &self.core.properties
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.core.faults.check(Call::MemoryInfo)?;
        let (free_bytes, total_bytes) = self.core.capacity.info();
        let free_bytes = self.core.group_bytes().map_or(free_bytes, |left| left.min(free_bytes));
        Ok(MemoryInfo::new(free_bytes, total_bytes))
    }

    fn allocate(&self, request: &AllocationRequest<'_>) -> Result<HostMemory, BackendError> {
        let &AllocationRequest { bytes, kind, .. } = request;
        self.core.faults.check(Call::Allocate)?;
        let most = self.core.properties.max_allocation;
        // Without a limit, a size is refused by the system that does not have it.
        arguments::check_size(bytes, if most < isize::MAX as u64 { most } else { u64::MAX })?;
        self.core.pause_before_allocation();
        HostMemory::new(&self.core, bytes, kind, !on_a_stream())
    }

    /// Work keeps what it uses, so that memory of this device goes in any order.
    fn allocate_on(
        &self,
        request: &AllocationRequest<'_>,
        stream: &HostStream,
    ) -> Result<HostMemory, BackendError> {
        self.check_stream(stream)?;
        self.allocate(request)
    }

    fn create_stream(&self) -> Result<HostStream, BackendError> {
        self.core.faults.check(Call::CreateStream)?;
        HostStream::spawn(&self.core)
    }

    fn synchronize(&self, stream: &HostStream) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        self.core.faults.check(Call::Synchronize)?;
        stream.synchronize()
    }

    fn record(&self, stream: &HostStream) -> Result<HostEvent, BackendError> {
        self.check_stream(stream)?;
        self.core.faults.check(Call::Record)?;
        stream.record()
    }

    fn is_idle(&self, stream: &HostStream) -> Result<bool, BackendError> {
        self.check_stream(stream)?;
        self.core.faults.check(Call::Query)?;
        Ok(stream.is_idle())
    }

    fn wait(&self, stream: &HostStream, event: &HostEvent) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        self.core.faults.check(Call::Wait)?;
        stream.wait(event)
    }

    fn copy(
        &self,
        stream: &HostStream,
        source: Region<'_, HostMemory>,
        destination: RegionMut<'_, HostMemory>,
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        self.core.faults.check(Call::Copy)?;
        let (reads, writes) = ([source], [destination.as_region()]);
        stream.check_regions(&reads, &writes)?;
        arguments::same_length(reads[0].len(), writes[0].len())?;
        stream.enqueue(&reads, &writes, |[source], [destination]| destination.copy_from_slice(source))
    }

    fn fill(
        &self,
        stream: &HostStream,
        destination: RegionMut<'_, HostMemory>,
        value: u8,
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        self.core.faults.check(Call::Fill)?;
        let writes = [destination.as_region()];
        stream.check_regions(&[], &writes)?;
        stream.enqueue(&[], &writes, move |[], [bytes]| bytes.fill(value))
    }

    fn upload(
        &self,
        stream: &HostStream,
        source: &[u8],
        destination: RegionMut<'_, HostMemory>,
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        self.core.faults.check(Call::Upload)?;
        let writes = [destination.as_region()];
        stream.check_regions(&[], &writes)?;
        arguments::same_length(source.len() as u64, writes[0].len())?;
        let mut copy = room_for(source.len())?;
        copy.extend_from_slice(source);
        stream.enqueue(&[], &writes, move |[], [bytes]| bytes.copy_from_slice(&copy))
    }

    fn download(
        &self,
        stream: &HostStream,
        source: Region<'_, HostMemory>,
        destination: &mut [u8],
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        self.core.faults.check(Call::Download)?;
        let reads = [source];
        stream.check_regions(&reads, &[])?;
        arguments::same_length(reads[0].len(), destination.len() as u64)?;
        let (sender, receiver) = bounded(1);
        let mut copy = room_for(destination.len())?;
        stream.enqueue(&reads, &[], move |[bytes], []| {
            copy.extend_from_slice(bytes);
            // Nothing listens any more when the caller's synchronisation failed.
            let _ = sender.send(copy);
        })?;
        stream.synchronize()?;
        match receiver.try_recv() {
            Ok(bytes) => {
                destination.copy_from_slice(&bytes);
                Ok(())
            }
            Err(_) => Err(crate::fault::lost()),
        }
    }

    fn write_mapped(&self, memory: &HostMemory, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        self.check_mapped(memory, offset, bytes.len())?;
        let span = memory.span(offset, bytes.len() as u64);
        let _turn = memory.host_turn();
        self.core.claims.with([], [span], |[], [mapped]| mapped.copy_from_slice(bytes))
    }

    fn read_mapped(&self, memory: &HostMemory, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.check_mapped(memory, offset, bytes.len())?;
        let span = memory.span(offset, bytes.len() as u64);
        let _turn = memory.host_turn();
        self.core.claims.with([span], [], |[mapped], []| bytes.copy_from_slice(mapped))
    }

    fn mapped<'a>(&self, memory: &'a mut HostMemory) -> Result<&'a [u8], BackendError> {
        self.check_mapped(memory, 0, 0)?;
        memory.unused()
    }

    #[cfg(target_os = "linux")]
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Memory = HostMemory>> {
        self.has(Capabilities::VIRTUAL_MEMORY).then_some(self)
    }

    #[cfg(target_os = "linux")]
    fn shared_handles(&self) -> Option<&dyn SharedHandles> {
        self.has(Capabilities::SHARED_HANDLES).then_some(self)
    }
}
