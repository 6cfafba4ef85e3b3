//! Memory, where it is placed, and ranges of it as seen from a stream.

use crate::{BackendError, Stream, StreamId};
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU32, Ordering};

/// A block of memory on a device. **Dropping it frees it.**
///
/// Dropping is safe at any time, and whoever drops it need not know when its bytes are free: the driver may keep them until
/// work that uses them is done. A backend makes sure that work which was enqueued before the drop does not touch
/// memory that was allocated after it (by reference counts, by a stream-ordered free, or by waiting).
pub trait Memory: fmt::Debug + Send + Sync + 'static {
    /// Size in bytes.
    fn len(&self) -> u64;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its address on the device, where the device has addresses (CUDA, host), else `None` (OpenCL, wgpu).
    fn address(&self) -> Option<u64> {
        None
    }
}

/// Where memory lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Placement {
    /// The device's own memory.
    #[default]
    Device,
    /// Memory of the host that the device reaches and that is not paged out ("pinned"). The host may map it.
    HostVisible,
    /// One address for host and device; the driver moves pages ("managed", "shared", "unified").
    Managed,
}

/// Bits that say what memory will be used for. Their meaning belongs to the backend (wgpu's `BufferUsages`, OpenCL's
/// `cl_mem_flags`); to a pool they are only part of the key under which idle memory is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Usage(pub u64);

impl Usage {
    /// The backend's default: whatever kernels and copies need.
    pub const DEFAULT: Self = Self(0);
}

/// Placement and usage: memory of one kind is never handed out for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MemoryKind {
    /// Where it lives.
    pub placement: Placement,
    /// What it is for.
    pub usage: Usage,
}

impl From<Placement> for MemoryKind {
    fn from(placement: Placement) -> Self {
        Self { placement, usage: Usage::DEFAULT }
    }
}

/// Keeps bytes where they are: whoever moves memory leaves alone what is held. Counts itself, nothing more.
///
/// A sub-allocator that compacts gives its [`Region`]s one, taken under the lock under which it decides what to move. An
/// operation drops its regions when it has enqueued its work; from there on the stream's order protects the bytes.
#[derive(Debug)]
pub struct Hold<'a>(&'a AtomicU32);

impl<'a> Hold<'a> {
    /// One more hold, until it is dropped.
    #[must_use]
    pub fn new(holds: &'a AtomicU32) -> Self {
        // Relaxed: whoever moves memory reads the count under the lock that this is called under.
        holds.fetch_add(1, Ordering::Relaxed);
        Self(holds)
    }
}

impl Clone for Hold<'_> {
    fn clone(&self) -> Self {
        // Relaxed: the count is not 0 already, so nobody moves what is held.
        Self::new(self.0)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire of whoever reads 0 and then moves; the work was enqueued before.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A range of a memory that one stream may read. While it exists the range stays where it is.
#[derive(Debug)]
pub struct Region<'a, M> {
    memory: &'a M,
    offset: u64,
    len: u64,
    stream: StreamId,
    hold: Option<Hold<'a>>,
    /// Bytes behind the region that a write to its end may overwrite.
    room: u64,
}

/// A range of a memory that one stream may read and write. Not `Clone`: two of them would alias.
#[derive(Debug)]
pub struct RegionMut<'a, M>(Region<'a, M>);

impl<M> Clone for Region<'_, M> {
    fn clone(&self) -> Self {
        let Self { memory, offset, len, stream, ref hold, room } = *self;
        Self { memory, offset, len, stream, hold: hold.clone(), room }
    }
}

fn check_range<M: Memory>(memory: &M, offset: u64, len: u64) -> Result<(), BackendError> {
    match offset.checked_add(len) {
        Some(end) if end <= memory.len() => Ok(()),
        _ => Err(BackendError::invalid(
            "range",
            format!("{len} bytes from {offset} on leave a memory of {} bytes", memory.len()),
        )),
    }
}

impl<'a, M: Memory> Region<'a, M> {
    /// `len` bytes from `offset` on, for use on `stream`.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when the range leaves the memory.
    pub fn new<S: Stream>(memory: &'a M, offset: u64, len: u64, stream: &S) -> Result<Self, BackendError> {
        check_range(memory, offset, len)?;
        Ok(Self { memory, offset, len, stream: stream.id(), hold: None, room: 0 })
    }

    /// All of a memory, for use on `stream`.
    pub fn whole<S: Stream>(memory: &'a M, stream: &S) -> Self {
        Self { memory, offset: 0, len: memory.len(), stream: stream.id(), hold: None, room: 0 }
    }

    /// The same, and the range stays where it is for as long as this or a clone of it exists.
    #[must_use]
    pub fn held(mut self, hold: Hold<'a>) -> Self {
        self.hold = Some(hold);
        self
    }

    /// The same, and up to `bytes` bytes behind it, as far as the memory has them, belong to the same owner and hold nothing. A
    /// device that copies and fills whole words only may overwrite them.
    #[must_use]
    pub fn with_room(mut self, bytes: u64) -> Self {
        self.room = bytes.min(self.memory.len() - self.offset - self.len);
        self
    }

    /// Bytes behind it that a device may overwrite with it. A [slice](Self::slice) has them if it ends where the region ends.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.room
    }

    /// The part `range` of this region, in bytes from its start.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when the range leaves the region.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self, BackendError> {
        let start = match range.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&start) => start.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(self.len),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= self.len => {
                let room = if end == self.len { self.room } else { 0 };
                Ok(Self { offset: self.offset + start, len: end - start, room, ..self.clone() })
            }
            _ => Err(BackendError::invalid("range", format!("it leaves a region of {} bytes", self.len))),
        }
    }

    /// The memory it is a range of.
    #[must_use]
    pub fn memory(&self) -> &'a M {
        self.memory
    }

    /// Where it starts, in bytes from the start of the memory.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its address on the device, where the device has addresses.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        self.memory.address().map(|base| base + self.offset)
    }

    /// The stream it may be used on.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Whether it shares a byte with another region.
    #[must_use]
    pub fn overlaps(&self, other: &Region<'_, M>) -> bool {
        std::ptr::eq(self.memory, other.memory)
            && !self.is_empty()
            && !other.is_empty()
            && self.offset < other.offset + other.len
            && other.offset < self.offset + self.len
    }

    /// For a backend over another one: the same range of the memory that `inner` finds in this one, for the same stream, and
    /// as held.
    ///
    /// # Errors
    /// Those of `inner`; [`BackendError::InvalidArgument`] when the range leaves the memory that it found.
    pub fn project<N: Memory>(
        self,
        inner: impl FnOnce(&'a M) -> Result<&'a N, BackendError>,
    ) -> Result<Region<'a, N>, BackendError> {
        let Self { memory, offset, len, stream, hold, room } = self;
        let memory = inner(memory)?;
        check_range(memory, offset, len)?;
        let room = room.min(memory.len() - offset - len);
        Ok(Region { memory, offset, len, stream, hold, room })
    }

    /// For a backend: refuses the region on any stream but its own.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] that names both streams.
    pub fn check_stream<S: Stream>(&self, stream: &S) -> Result<(), BackendError> {
        if self.stream == stream.id() {
            return Ok(());
        }
        Err(BackendError::invalid(
            "stream",
            format!(
                "the region was made for {} and is used on {}; make it with the stream that uses it",
                self.stream,
                stream.id()
            ),
        ))
    }
}

impl<'a, M: Memory> RegionMut<'a, M> {
    /// As [`Region::new`]. The caller promises that nobody else uses the range in the meantime, streams in order.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when the range leaves the memory.
    pub fn new<S: Stream>(memory: &'a M, offset: u64, len: u64, stream: &S) -> Result<Self, BackendError> {
        Region::new(memory, offset, len, stream).map(Self)
    }

    /// As [`Region::whole`].
    pub fn whole<S: Stream>(memory: &'a M, stream: &S) -> Self {
        Self(Region::whole(memory, stream))
    }

    /// The part `range` of this region, in bytes from its start.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when the range leaves the region.
    pub fn slice(self, range: impl RangeBounds<u64>) -> Result<Self, BackendError> {
        self.0.slice(range).map(Self)
    }

    /// As [`Region::project`].
    ///
    /// # Errors
    /// As [`Region::project`].
    pub fn project<N: Memory>(
        self,
        inner: impl FnOnce(&'a M) -> Result<&'a N, BackendError>,
    ) -> Result<RegionMut<'a, N>, BackendError> {
        self.0.project(inner).map(RegionMut)
    }

    /// The same range for reading; also the way to its memory, offset, length and stream.
    #[must_use]
    pub fn as_region(&self) -> Region<'a, M> {
        self.0.clone()
    }

    /// As [`Region::held`].
    #[must_use]
    pub fn held(self, hold: Hold<'a>) -> Self {
        Self(self.0.held(hold))
    }

    /// As [`Region::with_room`].
    #[must_use]
    pub fn with_room(self, bytes: u64) -> Self {
        Self(self.0.with_room(bytes))
    }
}
