//! Detaches the whole backing, and restores stitched ranges.

use super::Extent;
use crate::heap::arena::Backing;
use crate::heap::arena::mapping::{Stitched, StitchedPart, Weight};
use std::mem;
use std::sync::Arc;
use vrampool_backend::Backend;

impl<B: Backend> Backing<B> {
    /// Detaches everything that backs the range, and returns it, to be dropped without the lock.
    pub(crate) fn take_all(&mut self) -> impl Sized + use<B> {
        self.mapped = 0;
        self.extents.clear();
        self.parts_of.clear();
        (self.in_ranges, self.retiring_weight) = (Weight::default(), Weight::default());
        let Self { physical, stitched, partly_unmapped, retiring, .. } = self;
        (mem::take(physical), mem::take(stitched), mem::take(partly_unmapped), mem::take(retiring))
    }

    /// Restores a stitched range with its previous age. Its pieces must be restored already.
    pub(crate) fn put_stitched(&mut self, age: u64, memory: Arc<B::Memory>, pieces: Vec<Extent>) {
        self.restore([Stitched {
            serves_any: self.serves_any(&pieces),
            ..Stitched::new(age, memory, pieces)
        }]);
    }

    /// Keeps a range of `bytes` bytes that buffers use, and in which the given parts are mapped.
    pub(crate) fn put_partly_unmapped(
        &mut self,
        memory: Arc<B::Memory>,
        bytes: u64,
        parts: Vec<StitchedPart>,
    ) {
        let range = Stitched { bytes, ..Stitched::new(self.next_age(), memory, Vec::new()) };
        self.partly_unmapped.push((range, parts));
    }

    /// Returns all stitched ranges that are not being retired, with their mapped parts.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&Stitched<B>, Vec<StitchedPart>)> {
        let whole = self.stitched.iter().map(|range| (range, range.parts()));
        whole.chain(self.partly_unmapped.iter().map(|(range, parts)| (range, parts.clone())))
    }
}
