//! Detaches the whole backing, and restores stitched ranges.

use super::{Backing, Extent, Part, Retiring, Stitched, Weight};
use std::collections::VecDeque;
use std::sync::Arc;
use vrampool_backend::{Backend, Physical};

/// Everything that backed a range.
#[derive(Debug)]
pub(crate) struct Whole<B: Backend> {
    _physical: Vec<Physical>,
    _stitched: Vec<Stitched<B>>,
    _partly_unmapped: Vec<(Stitched<B>, Vec<Part>)>,
    _retiring: VecDeque<Retiring<B>>,
}

impl<B: Backend> Backing<B> {
    /// Detaches everything that backs the range. The result must be dropped without the lock.
    pub(crate) fn take_all(&mut self) -> Whole<B> {
        self.mapped = 0;
        self.search.forget();
        self.extents.clear();
        self.parts_of.clear();
        (self.in_ranges, self.retiring_weight) = (Weight::default(), Weight::default());
        Whole {
            _physical: std::mem::take(&mut self.physical),
            _stitched: std::mem::take(&mut self.stitched),
            _partly_unmapped: std::mem::take(&mut self.partly_unmapped),
            _retiring: std::mem::take(&mut self.retiring),
        }
    }

    /// Restores a stitched range with its previous age. Its pieces must be restored already.
    pub(crate) fn put_stitched(&mut self, age: u64, memory: Arc<B::Memory>, pieces: Vec<Extent>) {
        self.restore([Stitched {
            serves_any: self.serves_any(&pieces),
            ..Stitched::new(age, memory, pieces)
        }]);
    }

    /// Keeps a range of `bytes` bytes that buffers use, and in which the given parts are mapped.
    pub(crate) fn put_partly_unmapped(&mut self, memory: Arc<B::Memory>, bytes: u64, parts: Vec<Part>) {
        let range = Stitched { bytes, ..Stitched::new(self.next_age(), memory, Vec::new()) };
        self.partly_unmapped.push((range, parts));
    }

    /// Returns all stitched ranges that are not being retired, with their mapped parts.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&Stitched<B>, Vec<Part>)> {
        let whole = self.stitched.iter().map(|range| (range, range.parts()));
        whole.chain(self.partly_unmapped.iter().map(|(range, parts)| (range, parts.clone())))
    }
}
