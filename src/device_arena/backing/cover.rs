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
}

/// What is free of each of many pieces: mostly nothing.
#[derive(Debug, Default)]
pub(super) struct Covers {
    covers: Vec<Cover>,
    /// Those of which something is.
    touched: Vec<usize>,
}

impl Covers {
    pub(super) fn of(&self, place: u32) -> Cover {
        self.covers.get(place as usize).copied().unwrap_or_default()
    }

    /// Which pieces have a free back.
    pub(super) fn with_a_back(&self) -> impl Iterator<Item = usize> + '_ {
        let has_a_back = |place: &usize| self.covers.get(*place).is_some_and(|cover| cover.back > 0);
        self.touched.iter().copied().filter(has_a_back)
    }
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

    /// The covers of pieces by offset, none of which overlap.
    pub(super) fn cover(&self, pieces: &[Extent], Covers { covers, touched }: &mut Covers) {
        for place in touched.drain(..) {
            if let Some(cover) = covers.get_mut(place) {
                *cover = Cover::default();
            }
        }
        covers.resize(pieces.len(), Cover::default());
        let mut next = 0;
        for &(start, bytes) in &self.0 {
            let end = start + bytes;
            next +=
                pieces.get(next..).map_or(0, |pieces| pieces.partition_point(|piece| piece.end() <= start));
            // The last one may go on behind the hole, and have another.
            while let Some((piece, cover)) = pieces.get(next).zip(covers.get_mut(next))
                && piece.start < end
            {
                touched.push(next);
                if start <= piece.start {
                    cover.front = end.min(piece.end()) - piece.start;
                }
                if end < piece.end() {
                    break;
                }
                cover.back = piece.end() - start.max(piece.start);
                next += 1;
            }
        }
    }

    /// What is free of a piece.
    #[inline]
    pub(super) fn cover_of(&self, piece: Extent) -> Cover {
        let next = self.0.partition_point(|&(start, _)| start <= piece.start);
        let before = next.checked_sub(1).and_then(|last| self.0.get(last));
        let reach = before.map_or(0, |&(start, bytes)| start + bytes).min(piece.end());
        let front = reach.saturating_sub(piece.start);
        if front == piece.bytes {
            return Cover { front, back: front };
        }
        // The last of those that start within.
        let within = self.0.iter().skip(next).take_while(|(start, _)| *start < piece.end()).last();
        let back = within.filter(|(start, bytes)| start + bytes >= piece.end());
        Cover { front, back: back.map_or(0, |(start, _)| piece.end() - start) }
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
