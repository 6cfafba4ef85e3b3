//! Copies between host arrays and a chunk on the device: direct if the array is pinned and its rows are long,
//! otherwise through pinned blocks.

use crate::chunk_order::Piece;
use crate::data::Side;
use crate::error::BrokerError;
use crate::host_array::zero;
use crate::request::ChunkLayout;
use crate::staging::{Answer, PinnedBlock, Staging};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::spi::wait_out;
use vrampool_backend::{Backend, Region, RegionMut};

/// From this length on a row of a pinned array is copied straight, bytes.
const LONG_ROW: u64 = 64 << 10;

/// Moves chunks of data on one stream.
#[derive(Debug)]
pub(crate) struct Mover<'a, B: Backend> {
    pub(super) device: &'a B,
    staging: &'a Staging<B>,
    stream: &'a B::Stream,
    granule: u64,
    /// Whether a block that this stream's copies use was parked since it was last waited for.
    has_parked: bool,
    landing: VecDeque<Landing<B>>,
    pub(super) scratch: Vec<u8>,
    pub(crate) bytes: u64,
}

/// A block on its way to the host.
#[derive(Debug)]
struct Landing<B: Backend> {
    array: usize,
    layout: ChunkLayout,
    dense: Range<u64>,
    from: Arrived<B>,
}

#[derive(Debug)]
enum Arrived<B: Backend> {
    Block(PinnedBlock<B>),
    Bytes(Vec<u8>),
}

impl<'a, B: Backend> Mover<'a, B> {
    pub(crate) fn new(device: &'a B, staging: &'a Staging<B>, stream: &'a B::Stream) -> Self {
        Self {
            device,
            staging,
            stream,
            granule: device.properties().copy_granularity.max(1),
            has_parked: false,
            landing: VecDeque::new(),
            scratch: Vec::new(),
            bytes: 0,
        }
    }

    /// Enqueues the copies of one array's part of a chunk to `target`.
    pub(crate) fn upload(
        &mut self,
        side: Side<'_, B>,
        piece: &Piece<'_>,
        array: usize,
        layout: ChunkLayout,
        target: &Region<'_, B::Memory>,
    ) -> Result<(), BrokerError> {
        let len = piece.range.end - piece.range.start;
        let dense = layout.chunk_bytes(len);
        self.bytes += dense;
        if let Side::Pinned(memory) = side
            && self.is_straight(layout, &piece.range)
        {
            return self.straight(layout, &piece.range, |mover, from, to, bytes| {
                let source = Region::new(memory, from, bytes, mover.stream)?;
                Ok(mover.device.copy(mover.stream, source, mover.part(target, to, bytes)?)?)
            });
        }
        let step = self.staging.block_bytes();
        let mut start = 0;
        while start < dense {
            let part = start..dense.min(start + step);
            start = part.end;
            let bytes = part.end - part.start;
            let padded = bytes.next_multiple_of(self.granule);
            match self.block(padded)? {
                Some(block) => {
                    let outcome = self.fill(&block, side, piece, array, layout, &part).and_then(|()| {
                        let source = Region::new(&block.memory, 0, padded, self.stream)?;
                        let to = self.part(target, part.start, padded)?;
                        self.device.copy(self.stream, source, to)?;
                        Ok(self.device.record(self.stream)?)
                    });
                    match outcome {
                        Ok(event) => {
                            self.staging.park(block, Some(Arc::new(event)));
                            self.has_parked = true;
                        }
                        Err(error) => {
                            self.staging.drop_block(block);
                            return Err(error);
                        }
                    }
                }
                None => {
                    let mut gathered = std::mem::take(&mut self.scratch);
                    zero(&mut gathered, padded)?;
                    self.gather(side, piece, array, layout, &part, &mut gathered[..bytes as usize])?;
                    self.device.upload(self.stream, &gathered, self.part(target, part.start, padded)?)?;
                    self.scratch = gathered;
                }
            }
        }
        Ok(())
    }

    /// Enqueues the copies of one array's part of a chunk from `source`; [`land`](Self::land) brings them
    /// home.
    pub(crate) fn download(
        &mut self,
        side: Side<'_, B>,
        piece: &mut Piece<'_>,
        array: usize,
        layout: ChunkLayout,
        source: &Region<'_, B::Memory>,
        sides: &[Side<'_, B>],
    ) -> Result<(), BrokerError> {
        let len = piece.range.end - piece.range.start;
        let dense = layout.chunk_bytes(len);
        self.bytes += dense;
        if let Side::Pinned(memory) = side
            && self.is_straight(layout, &piece.range)
        {
            return self.straight(layout, &piece.range, |mover, to, from, bytes| {
                let target = RegionMut::new(memory, to, bytes, mover.stream)?;
                Ok(mover.device.copy(mover.stream, source.slice(from..from + bytes)?, target)?)
            });
        }
        let step = self.staging.block_bytes();
        let mut start = 0;
        while start < dense {
            let part = start..dense.min(start + step);
            start = part.end;
            let padded = (part.end - part.start).next_multiple_of(self.granule);
            let from = source.slice(part.start..part.start + padded)?;
            let arrived = match self.landing_block(padded, piece, sides)? {
                Some(block) => {
                    let copied = RegionMut::new(&block.memory, 0, padded, self.stream)
                        .and_then(|to| self.device.copy(self.stream, from, to));
                    if let Err(error) = copied {
                        self.staging.drop_block(block);
                        return Err(error.into());
                    }
                    Arrived::Block(block)
                }
                None => {
                    let mut bytes = Vec::new();
                    zero(&mut bytes, padded)?;
                    self.device.download(self.stream, from, &mut bytes)?;
                    Arrived::Bytes(bytes)
                }
            };
            self.landing.push_back(Landing { array, layout, dense: part, from: arrived });
        }
        Ok(())
    }

    /// Waits for the stream, and puts what arrived where it belongs.
    pub(crate) fn land(&mut self, piece: &mut Piece<'_>, sides: &[Side<'_, B>]) -> Result<(), BrokerError> {
        self.device.synchronize(self.stream)?;
        self.has_parked = false;
        // One at a time: after a failure `abandon` returns the others.
        while let Some(Landing { array, layout, dense, from }) = self.landing.pop_front() {
            let mut scratch = std::mem::take(&mut self.scratch);
            let outcome =
                self.scatter(sides[array], piece, array, layout, &dense, &mut scratch, |offset, bytes| {
                    match &from {
                        Arrived::Block(block) => self.device.read_mapped(&block.memory, offset, bytes)?,
                        Arrived::Bytes(arrived) => {
                            bytes.copy_from_slice(&arrived[offset as usize..][..bytes.len()]);
                        }
                    }
                    Ok(())
                });
            self.scratch = scratch;
            if let Arrived::Block(block) = from {
                self.staging.park(block, None);
            }
            outcome?;
        }
        Ok(())
    }

    /// Ends after a failure: no copy is pending any more, also if the device refuses to wait.
    pub(crate) fn abandon(&mut self) {
        let is_done = wait_out(self.device, self.stream).is_ok();
        for landing in self.landing.drain(..) {
            match landing.from {
                Arrived::Block(block) if is_done => self.staging.park(block, None),
                Arrived::Block(block) => self.staging.drop_block(block),
                Arrived::Bytes(_) => {}
            }
        }
    }

    fn part<'m>(
        &self,
        region: &Region<'m, B::Memory>,
        start: u64,
        bytes: u64,
    ) -> Result<RegionMut<'m, B::Memory>, BrokerError> {
        Ok(region.slice(start..start + bytes)?.assume_exclusive())
    }

    /// Returns a block for an upload. The mover's own blocks return first.
    fn block(&mut self, bytes: u64) -> Result<Option<PinnedBlock<B>>, BrokerError> {
        self.wait_for_block(bytes, |mover| {
            let has_parked = mover.has_parked;
            if has_parked {
                mover.device.synchronize(mover.stream)?;
                mover.has_parked = false;
            }
            Ok(has_parked)
        })
    }

    /// Returns a block for a download. What arrived in the mover's own blocks lands first.
    fn landing_block(
        &mut self,
        bytes: u64,
        piece: &mut Piece<'_>,
        sides: &[Side<'_, B>],
    ) -> Result<Option<PinnedBlock<B>>, BrokerError> {
        self.wait_for_block(bytes, |mover| {
            let has_own = mover.has_parked || !mover.landing.is_empty();
            if has_own {
                mover.land(piece, sides)?;
            }
            Ok(has_own)
        })
    }

    /// Returns a block, or `None` if none is ever free. Waits while others have all of them, but only after
    /// `return_own` returned this mover's own ones, so that a wait is always for work. `return_own` returns false
    /// if there were none.
    fn wait_for_block(
        &mut self,
        bytes: u64,
        mut return_own: impl FnMut(&mut Self) -> Result<bool, BrokerError>,
    ) -> Result<Option<PinnedBlock<B>>, BrokerError> {
        let mut has_waited = false;
        loop {
            match self.staging.try_block(bytes)? {
                Answer::Block(block) => return Ok(Some(block)),
                Answer::Never => return Ok(None),
                Answer::Later if !std::mem::replace(&mut has_waited, true) => self.staging.count_wait(),
                Answer::Later => {
                    if !return_own(self)? {
                        self.staging.wait();
                    }
                }
            }
        }
    }

    fn is_straight(&self, layout: ChunkLayout, range: &Range<u64>) -> bool {
        let row = layout.row_bytes(range.end - range.start);
        let strides = [row, layout.row_start(0, range.start), layout.row_start(1, 0)];
        (layout.rows == 1 || row >= LONG_ROW)
            && strides.iter().all(|bytes| bytes.is_multiple_of(self.granule))
    }

    /// Calls `copy` for each row, with where it is in the array, where in the chunk, and how long it is.
    fn straight(
        &self,
        layout: ChunkLayout,
        range: &Range<u64>,
        copy: impl Fn(&Self, u64, u64, u64) -> Result<(), BrokerError>,
    ) -> Result<(), BrokerError> {
        let row_bytes = layout.row_bytes(range.end - range.start);
        (0..layout.rows)
            .try_for_each(|row| copy(self, layout.row_start(row, range.start), row * row_bytes, row_bytes))
    }
}

impl<B: Backend> Drop for Mover<'_, B> {
    /// Blocks that did not land, because some code threw: nothing else is to wait for them.
    fn drop(&mut self) {
        for landing in self.landing.drain(..) {
            if let Arrived::Block(block) = landing.from {
                self.staging.drop_block(block);
            }
        }
    }
}
