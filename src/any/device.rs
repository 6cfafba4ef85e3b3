//! The backend contract for [`AnyDevice`], by the variant.
#![allow(unused_variables, reason = "no backend may be compiled in")]

use super::variants::{AnyDevice, AnyEvent, AnyMemory, AnyStream, on_each};
use vrampool_backend::{
    AllocationRequest, Backend, BackendError, CaptureId, DeviceId, Event, Memory, MemoryInfo, Properties,
    Region, RegionMut, SharedHandles, Stream, StreamId, VirtualMemory,
};

impl Memory for AnyMemory {
    fn len(&self) -> u64 {
        on_each!(self, memory => memory.len())
    }

    fn address(&self) -> Option<u64> {
        on_each!(self, memory => memory.address())
    }

    fn release(&self) -> bool {
        on_each!(self, memory => memory.release())
    }
}

impl Stream for AnyStream {
    #[inline]
    fn id(&self) -> StreamId {
        on_each!(self, stream => stream.id())
    }

    fn device(&self) -> DeviceId {
        on_each!(self, stream => stream.device())
    }

    fn is_retired(&self) -> bool {
        on_each!(self, stream => stream.is_retired())
    }
}

impl Event for AnyEvent {
    fn is_complete(&self) -> Result<bool, BackendError> {
        on_each!(self, event => event.is_complete())
    }
}

/// By the device behind it. What is another backend's is an invalid argument.
impl Backend for AnyDevice {
    type Memory = AnyMemory;
    type Stream = AnyStream;
    type Event = AnyEvent;

    fn id(&self) -> DeviceId {
        on_each!(self, device => device.id())
    }

    fn label(&self) -> String {
        on_each!(self, device => device.label())
    }

    fn properties(&self) -> &Properties {
        on_each!(self, device => device.properties())
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        on_each!(self, device => device.memory_info())
    }

    fn allocate(&self, request: &AllocationRequest<'_>) -> Result<AnyMemory, BackendError> {
        on_each!(self, device => Ok(device.allocate(request)?.into()))
    }

    fn allocate_on(
        &self,
        request: &AllocationRequest<'_>,
        stream: &AnyStream,
    ) -> Result<AnyMemory, BackendError> {
        on_each!(self, device => Ok(device.allocate_on(request, stream.try_into()?)?.into()))
    }

    fn free_on(&self, memory: AnyMemory, stream: &AnyStream) {
        on_each!(self, device => {
            // Memory and a stream of different backends: the memory is dropped.
            if let (Ok(memory), Ok(stream)) = (memory.try_into(), stream.try_into()) {
                device.free_on(memory, stream);
            }
        });
    }

    fn flush(&self, stream: &AnyStream) -> Result<(), BackendError> {
        on_each!(self, device => device.flush(stream.try_into()?))
    }

    fn reclaim(&self) -> Result<(), BackendError> {
        on_each!(self, device => device.reclaim())
    }

    fn create_stream(&self) -> Result<AnyStream, BackendError> {
        on_each!(self, device => Ok(device.create_stream()?.into()))
    }

    fn is_capturing(&self, stream: &AnyStream) -> Result<bool, BackendError> {
        on_each!(self, device => device.is_capturing(stream.try_into()?))
    }

    fn capture_of(&self, stream: &AnyStream) -> Result<Option<CaptureId>, BackendError> {
        on_each!(self, device => device.capture_of(stream.try_into()?))
    }

    fn is_idle(&self, stream: &AnyStream) -> Result<bool, BackendError> {
        on_each!(self, device => device.is_idle(stream.try_into()?))
    }

    fn synchronize(&self, stream: &AnyStream) -> Result<(), BackendError> {
        on_each!(self, device => device.synchronize(stream.try_into()?))
    }

    fn record(&self, stream: &AnyStream) -> Result<AnyEvent, BackendError> {
        on_each!(self, device => Ok(device.record(stream.try_into()?)?.into()))
    }

    fn wait(&self, stream: &AnyStream, event: &AnyEvent) -> Result<(), BackendError> {
        on_each!(self, device => device.wait(stream.try_into()?, event.try_into()?))
    }

    fn copy(
        &self,
        stream: &AnyStream,
        source: Region<'_, AnyMemory>,
        destination: RegionMut<'_, AnyMemory>,
    ) -> Result<(), BackendError> {
        on_each!(self, device => {
            let (source, destination) =
                (source.project(|memory| memory.try_into())?, destination.project(|memory| memory.try_into())?);
            device.copy(stream.try_into()?, source, destination)
        })
    }

    fn fill(
        &self,
        stream: &AnyStream,
        destination: RegionMut<'_, AnyMemory>,
        value: u8,
    ) -> Result<(), BackendError> {
        on_each!(self, device => {
            device.fill(stream.try_into()?, destination.project(|memory| memory.try_into())?, value)
        })
    }

    fn upload(
        &self,
        stream: &AnyStream,
        source: &[u8],
        destination: RegionMut<'_, AnyMemory>,
    ) -> Result<(), BackendError> {
        on_each!(self, device => {
            device.upload(stream.try_into()?, source, destination.project(|memory| memory.try_into())?)
        })
    }

    fn download(
        &self,
        stream: &AnyStream,
        source: Region<'_, AnyMemory>,
        destination: &mut [u8],
    ) -> Result<(), BackendError> {
        on_each!(self, device => {
            device.download(stream.try_into()?, source.project(|memory| memory.try_into())?, destination)
        })
    }

    fn write_mapped(&self, memory: &AnyMemory, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        on_each!(self, device => device.write_mapped(memory.try_into()?, offset, bytes))
    }

    fn read_mapped(&self, memory: &AnyMemory, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        on_each!(self, device => device.read_mapped(memory.try_into()?, offset, bytes))
    }

    fn mapped<'a>(&self, memory: &'a mut AnyMemory) -> Result<&'a [u8], BackendError> {
        on_each!(self, device => device.mapped(memory.try_into()?))
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Memory = AnyMemory>> {
        on_each!(self, device => {
            device.virtual_memory()?;
            Some(self)
        })
    }

    fn shared_handles(&self) -> Option<&dyn SharedHandles> {
        on_each!(self, device => device.shared_handles())
    }
}
