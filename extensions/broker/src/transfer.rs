//! Copies between host arrays and a chunk on the device: direct if the array is pinned and its rows are long,
//! otherwise through pinned blocks.

use crate::data::{HostPart, RowPart};
use crate::error::BrokerError;
use crate::host_array::zero;
use crate::staging::{Answer, PinnedBlock, Staging};
use std::collections::VecDeque;
use std::ops::Range;
use vrampool_backend::spi::wait_out;
use vrampool_backend::{Backend, Region, RegionMut};

/// Moves chunks of data on one stream.
#[derive(Debug)]
pub(crate) struct Mover<'a, B: Backend> {
    device: &'a B,
    staging: &'a Staging<B>,
    stream: &'a B::Stream,
    granule: u64,
    /// Whether a block that this stream's copies use was parked since it was last waited for.
    has_parked: bool,
    landing: VecDeque<Landing<B>>,
    scratch: Vec<u8>,
    pub(crate) bytes: u64,
}

/// A range of a chunk's part on its way to the host, by the array's place.
#[derive(Debug)]
struct Landing<B: Backend> {
    array: usize,
    range: Range<u64>,
    block: PinnedBlock<B>,
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

    /// Enqueues the copies of one array's part of a chunk to `target`, before any download of the chunk.
    pub(crate) fn upload(
        &mut self,
        part: &HostPart<'_, B>,
        target: &Region<'_, B::Memory>,
    ) -> Result<(), BrokerError> {
        self.bytes += part.bytes();
        if let Some(memory) = part.pinned(self.granule) {
            for RowPart { start, at, .. } in part.rows(&(0..part.bytes())) {
                let source = Region::new(memory, start, at.len() as u64, self.stream)?;
                let target = target.slice(at.start as u64..at.end as u64)?.assume_exclusive();
                self.device.copy(self.stream, source, target)?;
            }
            return Ok(());
        }
        for range in self.steps(part.bytes()) {
            let bytes = range.end - range.start;
            let padded = bytes.next_multiple_of(self.granule);
            let target = target.slice(range.start..range.start + padded)?.assume_exclusive();
            let Some(block) = self.block(padded, &mut [])? else {
                zero(&mut self.scratch, padded)?;
                part.read(self.device, &range, &mut self.scratch[..bytes as usize])?;
                self.device.upload(self.stream, &self.scratch, target)?;
                continue;
            };
            let copied = self.fill(&block, part, &range).and_then(|()| {
                let source = Region::new(&block.memory, 0, padded, self.stream)?;
                self.device.copy(self.stream, source, target)?;
                Ok(self.device.record(self.stream)?)
            });
            self.staging.finish(block, copied)?;
            self.has_parked = true;
        }
        Ok(())
    }

    /// Enqueues the copies of the part of the array at this place from `source`; [`land`](Self::land) completes them.
    /// Without a block the bytes are copied at once.
    pub(crate) fn download(
        &mut self,
        parts: &mut [HostPart<'_, B>],
        array: usize,
        source: &Region<'_, B::Memory>,
    ) -> Result<(), BrokerError> {
        let bytes = parts[array].bytes();
        self.bytes += bytes;
        if let Some(memory) = parts[array].pinned(self.granule) {
            for RowPart { start, at, .. } in parts[array].rows(&(0..bytes)) {
                let target = RegionMut::new(memory, start, at.len() as u64, self.stream)?;
                self.device.copy(self.stream, source.slice(at.start as u64..at.end as u64)?, target)?;
            }
            return Ok(());
        }
        for range in self.steps(bytes) {
            let padded = (range.end - range.start).next_multiple_of(self.granule);
            let source = source.slice(range.start..range.start + padded)?;
            let Some(block) = self.block(padded, parts)? else {
                zero(&mut self.scratch, padded)?;
                self.device.download(self.stream, source, &mut self.scratch)?;
                parts[array].write(self.device, &range, &self.scratch)?;
                continue;
            };
            // After a failure the block may still be in use, and is dropped, which is safe.
            let target = RegionMut::new(&block.memory, 0, padded, self.stream)?;
            self.device.copy(self.stream, source, target)?;
            self.landing.push_back(Landing { array, range, block });
        }
        Ok(())
    }

    /// Waits for the stream, and writes what arrived to the parts of the chunk.
    pub(crate) fn land(&mut self, parts: &mut [HostPart<'_, B>]) -> Result<(), BrokerError> {
        self.device.synchronize(self.stream)?;
        self.has_parked = false;
        // One at a time: after a failure `abandon` returns the others.
        while let Some(Landing { array, range, block }) = self.landing.pop_front() {
            let outcome = self.empty(&block, &mut parts[array], &range);
            self.staging.park(block, None);
            outcome?;
        }
        Ok(())
    }

    /// Ends after a failure: no copy is pending any more, also if the device refuses to wait.
    pub(crate) fn abandon(&mut self) {
        let is_done = wait_out(self.device, self.stream).is_ok();
        self.release(is_done);
    }

    fn release(&mut self, is_done: bool) {
        // A block that may still be in use is dropped, which is safe.
        for Landing { block, .. } in self.landing.drain(..).filter(|_| is_done) {
            self.staging.park(block, None);
        }
    }

    /// The ranges of so many bytes that fit a block.
    fn steps(&self, bytes: u64) -> impl Iterator<Item = Range<u64>> + use<B> {
        let step = self.staging.block_bytes();
        (0..bytes.div_ceil(step)).map(move |at| at * step..bytes.min((at + 1).saturating_mul(step)))
    }

    /// Copies a range of the host's bytes to a block.
    fn fill(
        &mut self,
        block: &PinnedBlock<B>,
        part: &HostPart<'_, B>,
        range: &Range<u64>,
    ) -> Result<(), BrokerError> {
        if let Some(bytes) = part.slice(range) {
            return Ok(self.device.write_mapped(&block.memory, 0, bytes)?);
        }
        zero(&mut self.scratch, range.end - range.start)?;
        part.read(self.device, range, &mut self.scratch)?;
        Ok(self.device.write_mapped(&block.memory, 0, &self.scratch)?)
    }

    /// Copies a block to a range of the host's bytes.
    fn empty(
        &mut self,
        block: &PinnedBlock<B>,
        part: &mut HostPart<'_, B>,
        range: &Range<u64>,
    ) -> Result<(), BrokerError> {
        if let Some(bytes) = part.slice_mut(range) {
            return Ok(self.device.read_mapped(&block.memory, 0, bytes)?);
        }
        zero(&mut self.scratch, range.end - range.start)?;
        self.device.read_mapped(&block.memory, 0, &mut self.scratch)?;
        part.write(self.device, range, &self.scratch)
    }

    /// Returns a block, or `None` if none is ever free. Waits while others have all of them, but only after this
    /// mover's own ones have returned, so that a wait is always for work. What arrived in them lands in `parts` first.
    fn block(
        &mut self,
        bytes: u64,
        parts: &mut [HostPart<'_, B>],
    ) -> Result<Option<PinnedBlock<B>>, BrokerError> {
        let mut has_waited = false;
        loop {
            match self.staging.try_block(bytes)? {
                Answer::Block(block) => return Ok(Some(block)),
                Answer::Never => return Ok(None),
                Answer::Later if !std::mem::replace(&mut has_waited, true) => {
                    self.staging.blocks().waits += 1
                }
                Answer::Later if self.has_parked || !self.landing.is_empty() => self.land(parts)?,
                Answer::Later => self.staging.wait(),
            }
        }
    }
}

impl<B: Backend> Drop for Mover<'_, B> {
    /// Drops blocks that did not land because of a panic: nothing waits for them.
    fn drop(&mut self) {
        self.release(false);
    }
}
