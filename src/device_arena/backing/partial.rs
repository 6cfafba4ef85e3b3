//! What sleep, waking and release do to a backing as a whole: all of it taken out, ranges put back or kept in parts, gaps cut.

use super::{Backing, Extent, Piece, Stitched, places};
use crate::arena::Arena;
use std::sync::{Arc, Weak};
use vrampool_backend::Backend;

/// A stitched range that a buffer has and of which pieces are gone. It serves nobody else, and goes with the buffer.
#[derive(Debug)]
pub(in super::super) struct Partial<B: Backend> {
    pub(in super::super) memory: Weak<B::Memory>,
    /// What is mapped there, and where.
    pub(in super::super) mapped: Vec<(u64, Extent)>,
}

impl<B: Backend> Stitched<B> {
    /// Its pieces, and where each starts in it.
    pub(in super::super) fn mapped(&self) -> impl Iterator<Item = (u64, Extent)> {
        self.pieces.iter().scan(0, |end, &piece| {
            let offset = *end;
            *end += piece.bytes;
            Some((offset, piece))
        })
    }
}

impl<B: Backend> Backing<B> {
    /// Nothing is behind the range any more. What this answers is to be dropped without the lock.
    pub(in super::super) fn take_all(&mut self) -> (Vec<Piece>, Vec<Stitched<B>>) {
        self.mapped = 0;
        self.partial.clear();
        (std::mem::take(&mut self.pieces), std::mem::take(&mut self.stitched))
    }

    /// A stitched range is there again, as old as it was.
    pub(in super::super) fn put_stitched(&mut self, age: u64, memory: Arc<B::Memory>, pieces: Vec<Extent>) {
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let places = places(&self.pieces, &pieces);
        let at = self.stitched.partition_point(|other| other.age < age);
        self.stitched.insert(at, Stitched { age, memory, pieces: pieces.into(), places, bytes });
    }

    /// Gaps at the end of the range are no part of it any more.
    pub(in super::super) fn cut_gaps(&mut self, engine: &mut Arena) {
        while let Some(last) = self.gaps.iter().position(|&gap| {
            let (start, bytes) = engine.extent(gap);
            start + bytes == engine.capacity()
        }) {
            let gap = self.gaps.swap_remove(last);
            let (start, _) = engine.extent(gap);
            if engine.free(gap).is_err() || engine.set_capacity(start).is_err() {
                break;
            }
            self.cut_at(start);
        }
    }
}
