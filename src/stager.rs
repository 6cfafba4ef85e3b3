//! Pinned staging: uploads that do not block the host behind the work on the stream.

use crate::environment::{self, Lookup};
use crate::error::Error;
use parking_lot::Mutex;
use std::sync::Arc;
use vrampool_backend::{Backend, Event, Memory, Placement, Region, RegionMut};

/// The smallest staging slot, bytes; larger ones are powers of two (netcl's).
const SMALLEST_SLOT: u64 = 1 << 20;

/// How an upload went.
#[derive(Debug)]
pub enum Upload<E> {
    /// By a pinned slot, without blocking. The event completes when the bytes are on the device.
    Staged(Arc<E>),
    /// By the backend's pageable path, which may have blocked the host.
    Pageable,
}

/// Copies from the host through pinned memory that stays mapped.
///
/// A pageable upload waits, in the driver, for all work before it: 25 MB behind 250 ms of queued work blocked the host
/// for 247 ms (netcl, on NVIDIA's OpenCL). A staged one copies to a pinned slot and returns. A slot is used again only
/// when the event behind its copy is complete: the stager asks and never waits. When all slots are busy and the cap is
/// reached, the caller takes the pageable path.
///
/// ```
/// # use vrampool::{Backend, Pool, Stager, Upload, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// # let pool = Pool::builder(&device).build()?;
/// let stager = Stager::new(&device)?;
/// let batch = vec![7; 1 << 20];
/// let mut input = pool.allocate(1 << 20, &stream)?;
/// let upload = stager.upload(&stream, &batch, input.on_mut(&stream)?)?;
/// assert!(matches!(upload, Upload::Staged(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stager<B: Backend> {
    device: B,
    max_bytes: u64,
    slots: Mutex<Slots<B>>,
}

#[derive(Debug)]
struct Slots<B: Backend> {
    /// Slots not in a caller's hands; their copies may still run.
    parked: Vec<Slot<B>>,
    /// Pinned bytes, those in a caller's hands included.
    bytes: u64,
}

#[derive(Debug)]
struct Slot<B: Backend> {
    memory: B::Memory,
    copied: Arc<B::Event>,
}

impl<B: Backend> Stager<B> {
    /// From this size on [`upload`](Self::upload) stages, bytes; smaller copies cost less than the bookkeeping.
    pub const MIN_BYTES: u64 = 64 * 1024;

    /// A stager with at most `VRAMPOOL_PINNED_STAGING_MB`, then `NETCL_PINNED_STAGING_MB` (MiB, decimal), then 512 MiB of
    /// pinned memory.
    ///
    /// # Errors
    /// [`Error::Environment`] for a variable that cannot be read.
    pub fn new(device: &B) -> Result<Self, Error> {
        Self::from_environment(device, &environment::process)
    }

    fn from_environment(device: &B, lookup: Lookup<'_>) -> Result<Self, Error> {
        let number =
            environment::number(environment::PINNED_STAGING, lookup)?.map_or(512.0, |(_, number)| number);
        Ok(Self::with_max_bytes(device, environment::bytes(number, environment::MIB)))
    }

    /// A stager with at most `max_bytes` of pinned memory; with less than 1 MiB it never stages.
    pub fn with_max_bytes(device: &B, max_bytes: u64) -> Self {
        Self { device: device.clone(), max_bytes, slots: Mutex::new(Slots { parked: Vec::new(), bytes: 0 }) }
    }

    /// Copies `source` to `destination` in order on `stream`: staged from [`MIN_BYTES`](Self::MIN_BYTES) on where a slot
    /// is to be had, else by the pageable path. `source` may be reused at once either way.
    ///
    /// # Errors
    /// [`Error::Backend`] when the lengths differ or the device fails.
    pub fn upload(
        &self,
        stream: &B::Stream,
        source: &[u8],
        destination: RegionMut<'_, B::Memory>,
    ) -> Result<Upload<B::Event>, Error> {
        let bytes = source.len() as u64;
        if bytes >= Self::MIN_BYTES
            && bytes == destination.as_region().len()
            && let Some(memory) = self.free_slot(bytes)?
        {
            return self.stage(memory, stream, source, destination).map(Upload::Staged);
        }
        self.device.upload(stream, source, destination)?;
        Ok(Upload::Pageable)
    }

    /// Bytes of pinned memory it has, busy or not.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.slots.lock().bytes
    }

    /// Gives back the slots whose copies are done. Answers how many bytes that were.
    ///
    /// # Errors
    /// What the device reports about an event; slots before it are given back.
    pub fn trim(&self) -> Result<u64, Error> {
        let mut slots = self.slots.lock();
        let (mut idle, mut index) = (Vec::new(), 0);
        let mut outcome = Ok(());
        while index < slots.parked.len() {
            match slots.parked[index].copied.is_complete() {
                Ok(true) => idle.push(slots.parked.swap_remove(index)),
                Ok(false) => index += 1,
                Err(error) => {
                    outcome = Err(error.into());
                    break;
                }
            }
        }
        let bytes: u64 = idle.iter().map(|slot| slot.memory.len()).sum();
        drop(slots);
        drop(idle);
        self.slots.lock().bytes -= bytes;
        outcome.map(|()| bytes)
    }

    /// A slot that nothing uses, of the right size; a new one where the cap allows it; else `None`.
    fn free_slot(&self, bytes: u64) -> Result<Option<B::Memory>, Error> {
        let Some(size) = bytes.max(SMALLEST_SLOT).checked_next_power_of_two() else { return Ok(None) };
        let mut slots = self.slots.lock();
        for index in 0..slots.parked.len() {
            if slots.parked[index].memory.len() == size && slots.parked[index].copied.is_complete()? {
                return Ok(Some(slots.parked.swap_remove(index).memory));
            }
        }
        // Idle slots of other sizes make room.
        let (mut idle, mut index) = (Vec::new(), 0);
        while slots.bytes.saturating_add(size) > self.max_bytes && index < slots.parked.len() {
            if slots.parked[index].copied.is_complete()? {
                let slot = slots.parked.swap_remove(index);
                slots.bytes -= slot.memory.len();
                idle.push(slot);
            } else {
                index += 1;
            }
        }
        if slots.bytes.saturating_add(size) > self.max_bytes {
            drop(slots);
            return Ok(None);
        }
        slots.bytes += size;
        drop(slots);
        match self.device.allocate(size, Placement::HostVisible.into()) {
            Ok(memory) => Ok(Some(memory)),
            Err(error) => {
                self.slots.lock().bytes -= size;
                // Too little pinned memory is what the pageable path is for.
                if error.is_out_of_memory() { Ok(None) } else { Err(error.into()) }
            }
        }
    }

    fn stage(
        &self,
        memory: B::Memory,
        stream: &B::Stream,
        source: &[u8],
        destination: RegionMut<'_, B::Memory>,
    ) -> Result<Arc<B::Event>, Error> {
        match self.copy_through(&memory, stream, source, destination) {
            Ok(event) => {
                let copied = Arc::new(event);
                self.slots.lock().parked.push(Slot { memory, copied: Arc::clone(&copied) });
                Ok(copied)
            }
            Err(error) => {
                // Whether a copy still reads the slot is not known, so it is not used again; dropping it is safe.
                let size = memory.len();
                drop(memory);
                self.slots.lock().bytes -= size;
                Err(error)
            }
        }
    }

    fn copy_through(
        &self,
        memory: &B::Memory,
        stream: &B::Stream,
        source: &[u8],
        destination: RegionMut<'_, B::Memory>,
    ) -> Result<B::Event, Error> {
        self.device.write_mapped(memory, 0, source)?;
        self.device.copy(stream, Region::new(memory, 0, source.len() as u64, stream)?, destination)?;
        Ok(self.device.record(stream)?)
    }
}
