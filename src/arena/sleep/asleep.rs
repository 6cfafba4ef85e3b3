//! An arena without its physical memory.

use super::backups::Backups;
use super::offload::Offload;
use super::view::View;
use crate::arena::mapping::pages::Extent;
use crate::staging::stored::Stored;
use std::sync::Weak;
use vrampool_backend::{Backend, Physical};

#[derive(Debug)]
pub(in crate::arena) enum Sleep<B: Backend> {
    Awake,
    /// Threads that find this state wait for the lock of changes and look again; a free does not wait.
    Changing,
    Asleep(Box<Asleep<B>>),
}

/// An arena without its physical memory.
#[derive(Debug)]
pub(in crate::arena) struct Asleep<B: Backend> {
    /// By offset.
    pub(super) pieces: Vec<SleepingPiece>,
    /// The range, and the stitched ranges that buffers use.
    pub(super) views: Vec<View<Weak<B::Memory>>>,
    pub(super) backups: Backups<B>,
    pub(super) offload: Offload,
}

/// The extent of a piece, and its physical memory if that could not be released.
#[derive(Debug)]
pub(super) struct SleepingPiece {
    pub(super) extent: Extent,
    pub(super) physical: Option<Physical>,
}

impl<B: Backend> Asleep<B> {
    /// Bytes of addresses of stitched ranges.
    pub(in crate::arena) fn stitched_bytes(&self) -> u64 {
        let stitched = self.views.iter().filter(|view| !view.is_range && view.memory.strong_count() > 0);
        stitched.map(View::bytes).sum()
    }

    pub(super) fn backup_bytes(&self) -> u64 {
        self.backups.bytes()
    }

    /// Forgets the contents of the extents. Returns memory to be dropped without the lock.
    pub(super) fn forget(&mut self, extents: &[Extent]) -> Vec<Stored<B>> {
        self.backups.forget(extents)
    }

    /// Bytes of physical memory that could not be released.
    pub(super) fn kept(&self) -> u64 {
        let kept = self.pieces.iter().filter(|piece| piece.physical.is_some());
        kept.map(|piece| piece.extent.bytes).sum()
    }
}
