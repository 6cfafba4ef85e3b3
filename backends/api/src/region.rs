//! Ranges of memory, each bound to a stream.

use crate::hold::Hold;
use crate::memory::check_range;
use crate::{BackendError, Memory, Stream, StreamId};
use std::ops::{Bound, RangeBounds};

/// A range of a memory that one stream may read. While it exists the range stays where it is.
///
/// A region carries a hold on its block, and everything made from it has that hold too: clones,
/// [slices](Self::slice) and [projections](Self::project). The memory itself is borrowed from the region, so
/// that a region that is made of it does not outlive the hold:
///
/// ```compile_fail,E0505
/// # use vrampool_backend::{Memory, Region, RegionMut, Stream};
/// # fn example<M: Memory, S: Stream>(region: Region<'_, M>, stream: &S) -> Result<(), vrampool_backend::BackendError> {
/// let part = RegionMut::new(region.memory(), region.offset(), 16, stream)?;
/// drop(region); // the part would be left without a hold
/// # drop(part);
/// # Ok(())
/// # }
/// ```
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
///
/// It is [divided](Self::split_at) into parts that do not overlap, and [reborrowed](Self::reborrow) for a while.
/// Every part has the hold of the whole; there is no other way to a part that stays where it is:
///
/// ```compile_fail,E0716
/// # use vrampool_backend::{BackendError, Memory, RegionMut, Stream};
/// # fn example<M: Memory, S: Stream>(region: RegionMut<'_, M>, stream: &S) -> Result<(), BackendError> {
/// let whole = region.as_region();
/// let part = RegionMut::new(region.as_region().memory(), whole.offset(), 16, stream)?;
/// # drop((whole, part));
/// # Ok(())
/// # }
/// ```
///
/// A reborrow ends before the region is used again:
///
/// ```compile_fail,E0499
/// # use vrampool_backend::{Memory, RegionMut};
/// # fn example<M: Memory>(mut region: RegionMut<'_, M>) {
/// let first = region.reborrow();
/// let second = region.reborrow();
/// # drop((first, second));
/// # }
/// ```
#[derive(Debug)]
pub struct RegionMut<'a, M>(Region<'a, M>);

impl<M> Clone for Region<'_, M> {
    fn clone(&self) -> Self {
        let Self { memory, offset, len, stream, ref hold, room } = *self;
        Self { memory, offset, len, stream, hold: hold.clone(), room }
    }
}

impl<'a, M: Memory> Region<'a, M> {
    /// `len` bytes from `offset` on, for use on `stream`.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when the range leaves the memory.
    pub fn new<S: Stream>(memory: &'a M, offset: u64, len: u64, stream: &S) -> Result<Self, BackendError> {
        check_range(offset, len, memory.len())?;
        Ok(Self { memory, offset, len, stream: stream.id(), hold: None, room: 0 })
    }

    /// All of a memory, for use on `stream`.
    pub fn whole<S: Stream>(memory: &'a M, stream: &S) -> Self {
        Self { memory, offset: 0, len: memory.len(), stream: stream.id(), hold: None, room: 0 }
    }

    /// The same, and the range stays where it is for as long as this or a clone of it exists. A hold that is
    /// there already stays too.
    #[must_use]
    pub fn held(mut self, hold: Hold<'a>) -> Self {
        self.hold = Some(hold.above(self.hold.take()));
        self
    }

    /// The same, and up to `bytes` bytes behind it, as far as the memory has them, belong to the same owner
    /// and hold nothing. A device that copies and fills whole words only may overwrite them.
    #[must_use]
    pub fn with_room(mut self, bytes: u64) -> Self {
        self.room = bytes.min(self.memory.len() - self.offset - self.len);
        self
    }

    /// Bytes behind it that a device may overwrite with it. A [slice](Self::slice) has them if it ends where
    /// the region ends.
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

    /// The memory it is a range of, for as long as the region exists.
    #[must_use]
    pub fn memory(&self) -> &M {
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
    pub fn stream_id(&self) -> StreamId {
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

    /// For a backend over another one: the same range of the memory that `inner` finds in this one, for the
    /// same stream, and as held. `inner` cannot keep the memory:
    ///
    /// ```compile_fail
    /// # use vrampool_backend::{Memory, Region};
    /// # fn example<M: Memory>(region: Region<'_, M>) {
    /// let mut kept = None;
    /// let projected = region.project(|memory| {
    ///     kept = Some(memory);
    ///     Ok(memory)
    /// });
    /// # drop((projected, kept));
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of `inner`; [`BackendError::InvalidArgument`] when the range leaves the memory that it found.
    pub fn project<N: Memory>(
        self,
        inner: impl for<'m> FnOnce(&'m M) -> Result<&'m N, BackendError>,
    ) -> Result<Region<'a, N>, BackendError> {
        let Self { memory, offset, len, stream, hold, room } = self;
        let memory = inner(memory)?;
        check_range(offset, len, memory.len())?;
        let room = room.min(memory.len() - offset - len);
        Ok(Region { memory, offset, len, stream, hold, room })
    }

    /// The same range, as held, for use on another stream. For work that the program orders itself: behind
    /// the region's stream, and before the code that uses the range next.
    #[must_use]
    pub fn for_stream<S: Stream>(mut self, stream: &S) -> Self {
        self.stream = stream.id();
        self
    }

    /// The same range for writing too, as held. For a sub-allocator that orders the uses of its memory
    /// itself: the caller promises that nothing else uses the range in the meantime, streams in order.
    #[must_use]
    pub fn assume_exclusive(self) -> RegionMut<'a, M> {
        RegionMut(self)
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
    /// As [`Region::new`]. The caller promises that nothing else uses the range in the meantime, streams in
    /// order.
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

    /// Its first `mid` bytes, and the others. Both stay where they are for as long as they exist.
    ///
    /// ```
    /// # use vrampool_backend::{BackendError, Backend};
    /// # use vrampool_backend::{RegionMut, Region};
    /// # fn example<B: Backend>(device: &B, stream: &B::Stream, memory: &B::Memory) -> Result<(), BackendError> {
    /// let (head, tail) = RegionMut::whole(memory, stream).split_at(4096)?;
    /// device.fill(stream, head, 0)?;
    /// device.fill(stream, tail, 1)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when `mid` is beyond the region's end.
    pub fn split_at(self, mid: u64) -> Result<(Self, Self), BackendError> {
        let (head, tail) = (self.0.slice(..mid)?, self.0.slice(mid..)?);
        Ok((Self(head), Self(tail)))
    }

    /// The same region for a while: this one is usable again once the result is dropped.
    #[must_use]
    pub fn reborrow(&mut self) -> RegionMut<'_, M> {
        RegionMut(self.0.clone())
    }

    /// As [`Region::offset`].
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset()
    }

    /// As [`Region::len`].
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// As [`Region::is_empty`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As [`Region::address`].
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        self.0.address()
    }

    /// As [`Region::stream_id`].
    #[must_use]
    pub fn stream_id(&self) -> StreamId {
        self.0.stream_id()
    }

    /// As [`Region::project`].
    ///
    /// # Errors
    /// As [`Region::project`].
    pub fn project<N: Memory>(
        self,
        inner: impl for<'m> FnOnce(&'m M) -> Result<&'m N, BackendError>,
    ) -> Result<RegionMut<'a, N>, BackendError> {
        self.0.project(inner).map(RegionMut)
    }

    /// The same range for reading, as held; also the way to its memory.
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
