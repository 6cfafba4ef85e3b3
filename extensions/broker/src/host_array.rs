//! Host arrays: pinned, pageable, or in a file.

use crate::data::Side;
use crate::error::BrokerError;
use crate::spilled::Spilled;
use std::any::type_name;
use std::borrow::Cow;
use std::ops::{Bound, Range, RangeBounds};
use vrampool::Element;
use vrampool_backend::spi::Grant;
use vrampool_backend::spi::reserve;
use vrampool_backend::{Backend, BackendError, fork};

/// The memory of a host array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostBacking {
    /// Memory that the device can copy to and from directly.
    Pinned,
    /// Ordinary memory.
    Pageable,
    /// An unnamed file, which is deleted with the array or at the end of the process, however it ends.
    File,
}

/// A host array, made by [`Broker::host_array`](crate::Broker::host_array). It starts as zeros, except when
/// pinned.
#[derive(Debug)]
pub struct HostArray<B: Backend> {
    pub(crate) bytes: Bytes<B>,
    /// Unset for one in a file.
    _in_memory: Option<Grant>,
}

#[derive(Debug)]
pub(crate) enum Bytes<B: Backend> {
    Pinned { memory: B::Memory, len: u64, device: B, _grant: Grant },
    Pageable(Vec<u8>),
    File(Spilled),
}

impl<B: Backend> HostArray<B> {
    pub(super) fn new(bytes: Bytes<B>, in_memory: Option<Grant>) -> Self {
        Self { bytes, _in_memory: in_memory }
    }

    pub(crate) fn side(&self) -> Side<'_, B> {
        match &self.bytes {
            Bytes::Pinned { memory, .. } => Side::Pinned(memory),
            Bytes::Pageable(bytes) => Side::Whole(bytes),
            Bytes::File(file) => Side::File(file),
        }
    }

    pub(crate) fn side_mut(&mut self) -> Side<'_, B> {
        match self.bytes {
            Bytes::Pageable(ref mut bytes) => Side::Rows(vec![bytes]),
            _ => self.side(),
        }
    }

    /// Returns its size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.bytes {
            Bytes::Pinned { len, .. } => *len,
            Bytes::Pageable(bytes) => bytes.len() as u64,
            Bytes::File(file) => file.len(),
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the kind of memory.
    #[must_use]
    pub fn backing(&self) -> HostBacking {
        match &self.bytes {
            Bytes::Pinned { .. } => HostBacking::Pinned,
            Bytes::Pageable(_) => HostBacking::Pageable,
            Bytes::File(_) => HostBacking::File,
        }
    }

    /// Copies the bytes from `offset` on to `bytes`.
    ///
    /// # Errors
    /// [`BrokerError::Memory`] for a range out of bounds, [`BrokerError::Spill`].
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), BrokerError> {
        fork::check()?;
        let range = self.range(offset, bytes.len())?;
        match &self.bytes {
            Bytes::Pinned { memory, device, .. } => device.read_mapped(memory, offset, bytes)?,
            Bytes::Pageable(held) => bytes.copy_from_slice(&held[range]),
            Bytes::File(file) => file.read_at(bytes, offset)?,
        }
        Ok(())
    }

    /// Returns a range of its elements, for example the results of a run, without a copy.
    ///
    /// ```
    /// # use vrampool::{Pool, host::HostDevice};
    /// # use vrampool_broker::{Broker, BrokerError};
    /// # fn main() -> Result<(), BrokerError> {
    /// # let broker = Broker::builder(&Pool::new(&HostDevice::new())?).build()?;
    /// let mut array = broker.host_array(4 * 1000)?;
    /// array.write_at(&2.5_f32.to_ne_bytes(), 4 * 7)?;
    /// assert_eq!(array.view::<f32>(7..=7)?[..], [2.5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// They lie in the order of the [requested](crate::ArrayRequest) shape, row-major and dense. No run can use the
    /// array while the view exists, because both borrow it:
    ///
    /// ```compile_fail,E0499
    /// # use vrampool_broker::{ArrayId, BrokerError, HostArray, Plan};
    /// # use vrampool::host::HostDevice;
    /// # fn example(plan: &Plan<HostDevice>, out: ArrayId, array: &mut HostArray<HostDevice>) -> Result<(), BrokerError> {
    /// let view = array.view::<f32>(..)?;
    /// plan.execution().download(out, &mut *array).run(|_, _| Ok(()))?;
    /// assert_eq!(view[0], 1.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The view is owned, a copy of the range alone, if the array is in a [file](HostBacking::File), and for an element
    /// type that needs a larger alignment than the memory has. Otherwise it is borrowed.
    ///
    /// # Errors
    /// [`BrokerError::Memory`] for a range out of bounds, if the array is not a whole number of elements, for
    /// pinned memory on devices that cannot share it in place (OpenCL, wgpu; use [`read_at`](Self::read_at), or a
    /// [pageable](HostBacking::Pageable) array), and if the host lacks memory for a copy; [`BrokerError::Spill`].
    pub fn view<T: Element>(&mut self, elements: impl RangeBounds<u64>) -> Result<Cow<'_, [T]>, BrokerError> {
        fork::check()?;
        let range = self.bytes_of::<T>(&elements)?;
        let bytes = match &mut self.bytes {
            Bytes::Pinned { memory, device, .. } => &device.mapped(memory)?[range],
            Bytes::Pageable(held) => &held[range],
            Bytes::File(file) => {
                return copied(range.len(), |bytes| file.read_at(bytes, range.start as u64)).map(Cow::Owned);
            }
        };
        match T::of_bytes(bytes) {
            Some(elements) => Ok(Cow::Borrowed(elements)),
            None => {
                let copy = |copy: &mut [u8]| {
                    copy.copy_from_slice(bytes);
                    Ok(())
                };
                copied(bytes.len(), copy).map(Cow::Owned)
            }
        }
    }

    /// Copies `bytes` to the array from `offset` on.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), BrokerError> {
        fork::check()?;
        let range = self.range(offset, bytes.len())?;
        match &mut self.bytes {
            Bytes::Pinned { memory, device, .. } => device.write_mapped(memory, offset, bytes)?,
            Bytes::Pageable(held) => held[range].copy_from_slice(bytes),
            Bytes::File(file) => file.write_at(bytes, offset)?,
        }
        Ok(())
    }

    /// Returns the address of its bytes, which stays as it is while the array exists; `None` for a
    /// [file](HostBacking::File), and where the memory has no address.
    pub fn address(&mut self) -> Option<u64> {
        match &mut self.bytes {
            // Pinned memory that has an address has it for host and device.
            Bytes::Pinned { memory, .. } => vrampool_backend::Memory::address(memory),
            Bytes::Pageable(bytes) => Some(bytes.as_mut_ptr().expose_provenance() as u64),
            Bytes::File(_) => None,
        }
    }

    /// Returns the bytes of a range of elements.
    fn bytes_of<T>(&self, elements: &impl RangeBounds<u64>) -> Result<Range<usize>, BrokerError> {
        let size = size_of::<T>() as u64;
        let Some(count) = self.len().checked_div(size).filter(|count| count * size == self.len()) else {
            let reason = format!("{} bytes are not a whole number of {}", self.len(), type_name::<T>());
            return Err(BackendError::invalid("element type", reason).into());
        };
        let start = match elements.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&start) => start.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match elements.end_bound() {
            Bound::Included(&end) => end.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(count),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= count => {
                Ok((start * size) as usize..(end * size) as usize)
            }
            _ => Err(BackendError::invalid("elements", format!("the array has {count} of them")).into()),
        }
    }

    fn range(&self, offset: u64, len: usize) -> Result<Range<usize>, BrokerError> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len() => Ok(offset as usize..end as usize),
            _ => {
                let reason = format!("{len} bytes from {offset} on leave an array of {}", self.len());
                Err(BackendError::invalid("range", reason).into())
            }
        }
    }
}

/// Returns elements of so many bytes, which `read` sets.
fn copied<T: Element>(
    bytes: usize,
    read: impl FnOnce(&mut [u8]) -> Result<(), BrokerError>,
) -> Result<Vec<T>, BrokerError> {
    let mut elements = Vec::new();
    zero(&mut elements, (bytes / size_of::<T>()) as u64)?;
    read(T::bytes_mut(&mut elements))?;
    Ok(elements)
}

/// Sets `memory` to so many zeros, or leaves it empty if the host has too little memory.
pub(crate) fn zero<T: Element>(memory: &mut Vec<T>, count: u64) -> Result<(), BrokerError> {
    memory.clear();
    let bytes = count.saturating_mul(size_of::<T>() as u64);
    let short = || BrokerError::HostMemory { requested_bytes: bytes };
    let length = usize::try_from(count).map_err(|_| short())?;
    reserve(memory, length).map_err(|_| short())?;
    memory.resize(length, T::zeroed());
    Ok(())
}
