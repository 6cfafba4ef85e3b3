//! Moves bytes within an arena's range, never by a copy that overlaps itself, and back if a step fails.

use crate::error::Error;
use crate::heap::arena::panics::caught;
use crate::heap::arena::{ArenaBuffer, DeviceArena};
use std::sync::Arc;
use vrampool_backend::AllocationRequest;
use vrampool_backend::{Backend, Capabilities, Region, RegionMut};

/// Smaller pieces are staged if possible, bytes: a copy for each would cost more than the extra bytes.
const SMALLEST_PIECE: u64 = 64 << 10;

/// Staging sizes to try, bytes.
const STAGES: [u64; 4] = [4 << 20, 1 << 20, 256 << 10, SMALLEST_PIECE];

/// Copies for one compaction, on one stream.
#[derive(Debug)]
pub(crate) struct Copier<'a, B: Backend> {
    arena: &'a DeviceArena<B>,
    range: Arc<B::Memory>,
    stream: &'a B::Stream,
}

/// The steps in which bytes move.
#[derive(Debug)]
enum CopyWay<'a, B: Backend> {
    /// Pieces of at most the distance.
    Pieces(u64),
    /// Through free memory of the arena after the block.
    Behind(Stage<'a, B>),
    /// Through separate memory, on a device that cannot copy within one memory.
    Staged(B::Memory),
}

/// A staging block of the arena, excluded from the peak.
#[derive(Debug)]
struct Stage<'a, B: Backend> {
    arena: &'a DeviceArena<B>,
    block: ArenaBuffer<B>,
    offset: u64,
}

impl<'a, B: Backend> Stage<'a, B> {
    fn new(arena: &'a DeviceArena<B>, bytes: u64, stream: &B::Stream) -> Result<Self, Error> {
        // Counted before the allocation, so that the reported use is never too high.
        arena.core.state.lock().peaks.staged += bytes;
        let block =
            arena.allocate(bytes, stream).inspect_err(|_| arena.core.state.lock().peaks.staged -= bytes)?;
        let mut stage = Self { arena, block, offset: 0 };
        stage.offset = stage.block.offset()?;
        Ok(stage)
    }
}

impl<B: Backend> Drop for Stage<'_, B> {
    fn drop(&mut self) {
        let mut state = self.arena.core.state.lock();
        // A range that was replaced in the meantime has no staged bytes.
        state.peaks.staged = state.peaks.staged.saturating_sub(self.block.len());
    }
}

impl<B: Backend> CopyWay<'_, B> {
    fn piece(&self) -> u64 {
        match self {
            Self::Pieces(bytes) => *bytes,
            Self::Behind(stage) => stage.block.len(),
            Self::Staged(_) => STAGES[0],
        }
    }
}

impl<'a, B: Backend> Copier<'a, B> {
    pub(crate) fn new(arena: &'a DeviceArena<B>, range: Arc<B::Memory>, stream: &'a B::Stream) -> Self {
        Self { arena, range, stream }
    }

    /// Enqueues copies of `bytes` bytes from `from` down to `to`, or up to a range that does not overlap. If
    /// a copy is refused, the earlier ones are reversed.
    pub(crate) fn move_to(&self, from: u64, to: u64, bytes: u64) -> Result<(), Error> {
        let way = self.way(from, to, bytes)?;
        let mut done = 0;
        while done < bytes {
            let length = way.piece().min(bytes - done);
            let (copied, panic) = caught(|| self.copy(&way, from + done, to + done, length));
            if copied.is_err() {
                // A failure here is final (the device is lost), and nothing remains to be saved. A device that panicked
                // may panic again.
                let _ = caught(|| self.take_back(&way, from, to, done));
                panic.go_on();
                return copied;
            }
            done += length;
        }
        Ok(())
    }

    /// Moves the first `done` bytes back, last piece first: only later pieces overwrote a piece's old place.
    fn take_back(&self, way: &CopyWay<'_, B>, from: u64, to: u64, mut done: u64) -> Result<(), Error> {
        while done > 0 {
            let length = match done % way.piece() {
                0 => way.piece(),
                rest => rest,
            };
            done -= length;
            self.copy(way, to + done, from + done, length)?;
        }
        Ok(())
    }

    fn way(&self, from: u64, to: u64, bytes: u64) -> Result<CopyWay<'a, B>, Error> {
        let device = self.arena.device();
        if !device.properties().capabilities.contains(Capabilities::COPY_WITHIN_MEMORY) {
            return Ok(CopyWay::Staged(
                device.allocate(&AllocationRequest::new(STAGES[0], self.arena.kind()))?,
            ));
        }
        let distance = from.abs_diff(to);
        if distance < bytes && distance < SMALLEST_PIECE {
            for stage in STAGES.into_iter().filter(|&stage| stage <= bytes.max(SMALLEST_PIECE)) {
                if let Ok(stage) = Stage::new(self.arena, stage, self.stream)
                    && stage.offset > from
                {
                    return Ok(CopyWay::Behind(stage));
                }
            }
        }
        Ok(CopyWay::Pieces(distance.min(bytes)))
    }

    fn copy(&self, way: &CopyWay<'_, B>, from: u64, to: u64, bytes: u64) -> Result<(), Error> {
        let (device, stream, range) = (self.arena.device(), self.stream, &*self.range);
        let source = Region::new(range, from, bytes, stream)?;
        let destination = RegionMut::new(range, to, bytes, stream)?;
        let (memory, offset) = match way {
            CopyWay::Pieces(_) => return Ok(device.copy(stream, source, destination)?),
            CopyWay::Behind(stage) => (range, stage.offset),
            CopyWay::Staged(memory) => (memory, 0),
        };
        device.copy(stream, source, RegionMut::new(memory, offset, bytes, stream)?)?;
        Ok(device.copy(stream, Region::new(memory, offset, bytes, stream)?, destination)?)
    }
}
