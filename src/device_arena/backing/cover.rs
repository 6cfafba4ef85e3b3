//! Extents of a growing arena's range, and which parts of them are free. Numbers only.

/// Bytes from one offset of the range on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Extent {
    pub(in super::super) start: u64,
    pub(in super::super) bytes: u64,
}

impl Extent {
    pub(in super::super) fn end(self) -> u64 {
        self.start + self.bytes
    }

    pub(super) fn first(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    pub(super) fn last(self, bytes: u64) -> Self {
        Self { start: self.end() - bytes, bytes }
    }
}

/// What is free of a piece, in one piece.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cover {
    pub(super) front: u64,
    pub(super) back: u64,
    pub(super) bytes: u64,
}

/// Free blocks by offset, those too small to matter left out.
#[derive(Debug)]
pub(in super::super) struct Holes(Vec<(u64, u64)>);

impl Holes {
    /// Of blocks by offset, with their bytes; none touches another within a piece.
    pub(in super::super) fn new(blocks: Vec<(u64, u64)>) -> Self {
        Self(blocks)
    }

    /// The same, with more free extents that are in none.
    pub(super) fn with(mut self, more: &[Extent]) -> Self {
        self.0.extend(more.iter().map(|extent| (extent.start, extent.bytes)));
        self.0.sort_unstable();
        self
    }

    /// The covers of pieces by offset.
    pub(super) fn cover(&self, pieces: impl Iterator<Item = Extent>, covers: &mut Vec<Cover>) {
        let mut holes = self.0.iter().copied().peekable();
        covers.clear();
        covers.extend(pieces.map(|piece| {
            let mut cover = Cover { front: 0, back: 0, bytes: piece.bytes };
            while let Some(&(start, bytes)) = holes.peek() {
                let end = start + bytes;
                if start >= piece.end() {
                    break;
                }
                if start <= piece.start && end > piece.start {
                    cover.front = end.min(piece.end()) - piece.start;
                }
                if end >= piece.end() {
                    cover.back = piece.end() - start.max(piece.start);
                    break;
                }
                holes.next();
            }
            cover
        }));
    }

    /// How many bytes at the front of an extent are free in one piece.
    pub(in super::super) fn front_of(&self, extent: Extent) -> u64 {
        let next = self.0.partition_point(|&(start, _)| start <= extent.start);
        let Some((start, bytes)) = next.checked_sub(1).and_then(|last| self.0.get(last)) else { return 0 };
        (start + bytes).min(extent.end()).saturating_sub(extent.start)
    }

    /// How many bytes at the back of an extent are free in one piece.
    pub(super) fn back_of(&self, extent: Extent) -> u64 {
        let next = self.0.partition_point(|&(start, _)| start < extent.end());
        let Some(&(start, bytes)) = next.checked_sub(1).and_then(|last| self.0.get(last)) else { return 0 };
        if start + bytes < extent.end() { 0 } else { extent.end() - start.max(extent.start) }
    }
}
