//! Bytes moved within one memory, never by a copy that overlaps itself, and moved back when a step fails.

use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, Capabilities, MemoryKind, Region, RegionMut};

/// Pieces smaller than this are staged instead: a copy for each would cost more than the bytes, bytes.
const SMALLEST_PIECE: u64 = 64 << 10;

/// Staging memory, bytes.
const STAGE: u64 = 4 << 20;

/// Copies for one compaction, on one stream.
#[derive(Debug)]
pub(super) struct Copier<'a, B: Backend> {
    device: &'a B,
    stream: &'a B::Stream,
    memory: Arc<B::Memory>,
    kind: MemoryKind,
    /// Taken from the device at the first need.
    stage: Option<B::Memory>,
}

impl<'a, B: Backend> Copier<'a, B> {
    pub(super) fn new(
        device: &'a B,
        stream: &'a B::Stream,
        memory: Arc<B::Memory>,
        kind: MemoryKind,
    ) -> Self {
        Self { device, stream, memory, kind, stage: None }
    }

    /// Enqueues copies that move `bytes` bytes from `from` down to `to`. When one is refused, those before it are taken
    /// back, so that the bytes are where they were.
    pub(super) fn move_down(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), BackendError> {
        let piece = self.piece(from - to, bytes)?;
        let mut done = 0;
        while done < bytes {
            let length = piece.bytes.min(bytes - done);
            if let Err(error) = self.copy(piece, from + done, to + done, length) {
                self.take_back(piece, from, to, done);
                return Err(error);
            }
            done += length;
        }
        Ok(())
    }

    /// Moves the first `done` bytes up again, the last piece first: a piece's old place was overwritten by pieces behind it
    /// alone. What fails now fails for good (the device is lost), and there is nothing left to save.
    fn take_back(&self, piece: Piece, from: u64, to: u64, mut done: u64) {
        while done > 0 {
            let length = match done % piece.bytes {
                0 => piece.bytes,
                rest => rest,
            };
            done -= length;
            if self.copy(piece, to + done, from + done, length).is_err() {
                return;
            }
        }
    }

    /// In what pieces bytes move over `distance`.
    fn piece(&mut self, distance: u64, bytes: u64) -> Result<Piece, BackendError> {
        let within = self.device.properties().capabilities.contains(Capabilities::COPY_WITHIN_MEMORY);
        let direct = Piece { bytes: distance.min(bytes), staged: false };
        if within && (direct.bytes == bytes || distance >= SMALLEST_PIECE) {
            return Ok(direct);
        }
        if self.stage.is_none() {
            match self.device.allocate(STAGE, self.kind) {
                Ok(stage) => self.stage = Some(stage),
                // Slow, but in place.
                Err(error) if error.is_out_of_memory() && within => return Ok(direct),
                Err(error) => return Err(error),
            }
        }
        Ok(Piece { bytes: STAGE, staged: true })
    }

    fn copy(&self, piece: Piece, from: u64, to: u64, bytes: u64) -> Result<(), BackendError> {
        let source = Region::new(&*self.memory, from, bytes, self.stream)?;
        let destination = RegionMut::new(&*self.memory, to, bytes, self.stream)?;
        let Some(stage) = self.stage.as_ref().filter(|_| piece.staged) else {
            return self.device.copy(self.stream, source, destination);
        };
        self.device.copy(self.stream, source, RegionMut::new(stage, 0, bytes, self.stream)?)?;
        self.device.copy(self.stream, Region::new(stage, 0, bytes, self.stream)?, destination)
    }
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    bytes: u64,
    staged: bool,
}
