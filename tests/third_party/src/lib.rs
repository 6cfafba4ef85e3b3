//! A device made of vectors, whose work is done when a call returns.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vrampool_backend::{
    AllocationRequest, Backend, BackendError, Capabilities, DeviceId, DeviceKind, Event, Memory, MemoryInfo,
    Placement, Properties, Region, RegionMut, Stream, StreamId,
};

/// The device.
#[derive(Debug, Clone)]
pub struct VecDevice(Arc<Properties>);

/// Memory of a [`VecDevice`].
#[derive(Debug)]
pub struct VecMemory(Mutex<Vec<u8>>, u64);

/// A stream of a [`VecDevice`].
#[derive(Debug, Clone)]
pub struct VecStream(StreamId);

/// A point in a [`VecStream`], reached as soon as it is recorded.
#[derive(Debug)]
pub struct Done;

type Answer<T = ()> = Result<T, BackendError>;

const ID: DeviceId = DeviceId::new("vec", 0);

impl Default for VecDevice {
    fn default() -> Self {
        let mut properties = Properties::new(ID.backend, "vectors");
        properties.kind = DeviceKind::Cpu;
        properties.max_allocation = isize::MAX as u64;
        properties.capabilities = Capabilities::COPY_WITHIN_MEMORY;
        Self(Arc::new(properties))
    }
}

impl VecMemory {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory for VecMemory {
    fn len(&self) -> u64 {
        self.1
    }
}

impl Stream for VecStream {
    fn id(&self) -> StreamId {
        self.0
    }

    fn device(&self) -> DeviceId {
        ID
    }
}

impl Event for Done {
    fn is_complete(&self) -> Answer<bool> {
        Ok(true)
    }
}

/// Where a region's bytes are, once it is known to be `stream`'s and as long as what it is copied from or to.
fn range(region: &Region<'_, VecMemory>, stream: &VecStream, len: usize) -> Answer<Range<usize>> {
    region.check_stream(stream)?;
    if region.len() != len as u64 {
        return Err(BackendError::invalid("length", format!("{} bytes are not {len}", region.len())));
    }
    Ok(region.offset() as usize..region.offset() as usize + len)
}

impl Backend for VecDevice {
    type Memory = VecMemory;
    type Stream = VecStream;
    type Event = Done;

    fn id(&self) -> DeviceId {
        ID
    }

    fn properties(&self) -> &Properties {
        &self.0
    }

    fn memory_info(&self) -> Answer<MemoryInfo> {
        Err(BackendError::unsupported("reading how much memory is free"))
    }

    fn allocate(&self, &AllocationRequest { bytes, kind, .. }: &AllocationRequest<'_>) -> Answer<VecMemory> {
        if kind.placement != Placement::Device {
            return Err(BackendError::unsupported("memory that is not its own"));
        }
        if bytes == 0 {
            return Err(BackendError::invalid("bytes", "an allocation has at least 1"));
        }
        let (mut vector, len) = (Vec::new(), usize::try_from(bytes).unwrap_or(usize::MAX));
        let reserved = vector.try_reserve_exact(len);
        reserved.map_err(|_| BackendError::out_of_memory(bytes, None))?;
        vector.resize(len, 0);
        Ok(VecMemory(Mutex::new(vector), bytes))
    }

    fn create_stream(&self) -> Answer<VecStream> {
        Ok(VecStream(StreamId::next()))
    }

    fn synchronize(&self, _: &VecStream) -> Answer {
        Ok(())
    }

    fn record(&self, _: &VecStream) -> Answer<Done> {
        Ok(Done)
    }

    fn wait(&self, _: &VecStream, _: &Done) -> Answer {
        Ok(())
    }

    fn copy(&self, on: &VecStream, from: Region<'_, VecMemory>, to: RegionMut<'_, VecMemory>) -> Answer {
        if to.as_region().overlaps(&from) {
            return Err(BackendError::invalid("region", "the ranges overlap"));
        }
        let mut bytes = vec![0; from.len() as usize];
        self.download(on, from, &mut bytes)?;
        self.upload(on, &bytes, to)
    }

    fn fill(&self, on: &VecStream, to: RegionMut<'_, VecMemory>, value: u8) -> Answer {
        self.upload(on, &vec![value; to.as_region().len() as usize], to)
    }

    fn upload(&self, on: &VecStream, from: &[u8], to: RegionMut<'_, VecMemory>) -> Answer {
        let to = to.as_region();
        to.memory().bytes()[range(&to, on, from.len())?].copy_from_slice(from);
        Ok(())
    }

    fn download(&self, on: &VecStream, from: Region<'_, VecMemory>, to: &mut [u8]) -> Answer {
        to.copy_from_slice(&from.memory().bytes()[range(&from, on, to.len())?]);
        Ok(())
    }
}
