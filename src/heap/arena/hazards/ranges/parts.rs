//! Disjoint parts of a range, by offset.
//!
//! They are a sorted list in chunks. Mostly there is one chunk, which is searched and changed faster than a
//! tree. With many parts, a change moves only those of one chunk.

use crate::heap::arena::hazards::ranges::{Part, Parts};
use std::cell::Cell;
use std::ops::Range;

/// Most parts of a chunk.
const CHUNK: usize = if cfg!(test) { 4 } else { 64 };

impl Parts {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), last: Cell::default() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Part> {
        self.chunks.iter().flatten()
    }

    /// Returns the chunk and index of the last part that starts at or before `offset`.
    #[inline]
    fn place(&self, offset: u64) -> Option<(usize, usize)> {
        let last @ (chunk, place) = self.last.get();
        let starts = |part: &Part| part.start <= offset;
        if let Some([part, others @ ..]) = self.chunks.get(chunk).and_then(|parts| parts.get(place..))
            && starts(part)
            && others.first().or_else(|| self.chunks.get(chunk + 1)?.first()).is_none_or(|next| !starts(next))
        {
            return Some(last);
        }
        self.search(offset)
    }

    #[inline(never)]
    fn search(&self, offset: u64) -> Option<(usize, usize)> {
        let starts = |part: &Part| part.start <= offset;
        let chunk = self.chunks.partition_point(|parts| parts.first().is_some_and(starts)).checked_sub(1)?;
        self.last.set((chunk, self.chunks[chunk].partition_point(starts) - 1));
        Some(self.last.get())
    }

    /// Returns the last part that starts at or before `offset`.
    #[inline]
    pub(super) fn at(&self, offset: u64) -> Option<&Part> {
        let (chunk, place) = self.place(offset)?;
        self.chunks[chunk].get(place)
    }

    #[inline]
    pub(super) fn at_mut(&mut self, offset: u64) -> Option<&mut Part> {
        let (chunk, place) = self.place(offset)?;
        self.chunks[chunk].get_mut(place)
    }

    /// Returns the parts that overlap a range, by offset.
    #[inline]
    pub(super) fn overlapping<'a>(
        &'a self,
        &Range { start, end }: &Range<u64>,
    ) -> impl Iterator<Item = &'a Part> + use<'a> {
        let (chunk, place) = self.place(start).unwrap_or_default();
        let first = self.chunks.get(chunk).map_or(&[][..], |parts| &parts[place..]);
        let others = self.chunks.get(chunk + 1..).unwrap_or_default();
        let until = move |part: &&Part| start < end && part.start < end;
        first.iter().chain(others.iter().flatten()).take_while(until).filter(move |part| part.end > start)
    }

    /// Replaces everything in the range of a part that is not empty, and joins it with
    /// [alike](Part::is_alike) neighbours. Returns the range of the joined part.
    pub(super) fn put(&mut self, mut new: Part) -> Range<u64> {
        let (start, end) = (new.start, new.end);
        let (chunk, at) = self.place(start).unwrap_or_default();
        if self.is_at_edge(chunk, at, end) {
            return self.put_across(new);
        }
        let parts = &mut self.chunks[chunk];
        // The first part that it touches.
        let mut first = at - usize::from(at > 0 && parts[at].start == start);
        first += parts[first..].iter().take_while(|part| part.end < start).count();
        let mut behind = first;
        if let Some(left) = parts.get_mut(first).filter(|left| left.start < start) {
            if left.is_alike(&new) {
                new.start = left.start;
                if left.end > end {
                    return left.start..left.end;
                }
            } else {
                let rest = (left.end > end).then(|| left.split_off(end));
                left.end = start;
                first += 1;
                rest.into_iter().for_each(|rest| parts.insert(first, rest));
            }
            behind += 1;
        }
        behind += parts[behind..].iter().take_while(|part| part.end <= end).count();
        if let Some(right) = parts.get_mut(behind).filter(|right| right.start <= end) {
            if right.is_alike(&new) {
                new.end = right.end;
                behind += 1;
            } else {
                right.start = end;
            }
        }
        let range = new.start..new.end;
        match parts.get_mut(first..behind) {
            Some([place, ..]) => {
                *place = new;
                parts.drain(first + 1..behind);
            }
            _ => parts.insert(first, new),
        }
        self.split_if_full(chunk);
        range
    }

    /// Whether a part up to `end` may touch another chunk than the one where it starts, or there is no chunk.
    fn is_at_edge(&self, chunk: usize, at: usize, end: u64) -> bool {
        let last = self.chunks.get(chunk).and_then(|parts| parts.last());
        let next = self.chunks.get(chunk + 1).and_then(|parts| parts.first());
        let is_next = |last: &Part| last.end <= end && next.is_some_and(|next| next.start <= end);
        at == 0 && chunk > 0 || last.is_none_or(is_next)
    }

    /// As [`put`](Self::put), across chunks.
    #[cold]
    fn put_across(&mut self, mut new: Part) -> Range<u64> {
        self.cut(&(new.start..new.end));
        if let Some(left) = self.remove_if(new.start, |left| left.end == new.start && left.is_alike(&new)) {
            new.start = left.start;
        }
        if let Some(right) = self.remove_if(new.end, |right| right.start == new.end && right.is_alike(&new)) {
            new.end = right.end;
        }
        let range = new.start..new.end;
        self.insert(new);
        range
    }

    /// Removes the last part that starts at or before `offset`, if `is_such` holds for it.
    fn remove_if(&mut self, offset: u64, is_such: impl FnOnce(&Part) -> bool) -> Option<Part> {
        let (chunk, place) = self.place(offset)?;
        let parts = &mut self.chunks[chunk];
        let part = is_such(&parts[place]).then(|| parts.remove(place));
        if parts.is_empty() {
            self.chunks.remove(chunk);
        }
        part
    }

    /// Adds a part that overlaps no other.
    fn insert(&mut self, part: Part) {
        if self.chunks.is_empty() {
            self.chunks.push(Vec::with_capacity(CHUNK + 1));
        }
        let (chunk, place) = self.place(part.start).map_or((0, 0), |(chunk, place)| (chunk, place + 1));
        self.chunks[chunk].insert(place, part);
        self.split_if_full(chunk);
    }

    fn split_if_full(&mut self, chunk: usize) {
        let parts = &mut self.chunks[chunk];
        if parts.len() > CHUNK {
            let mut back = Vec::with_capacity(CHUNK + 1);
            back.extend(parts.drain(CHUNK / 2..));
            self.chunks.insert(chunk + 1, back);
        }
    }

    /// Removes `range`.
    pub(super) fn cut(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        for edge in [range.start, range.end] {
            let across = self.at_mut(edge).filter(|part| part.start < edge && edge < part.end);
            if let Some(back) = across.map(|part| part.split_off(edge)) {
                self.insert(back);
            }
        }
        let mut chunk = self.place(range.start).map_or(0, |(chunk, _)| chunk);
        while let Some(parts) = self.chunks.get_mut(chunk).filter(|parts| parts[0].start < range.end) {
            let first = parts.partition_point(|part| part.start < range.start);
            let behind = parts.partition_point(|part| part.start < range.end);
            parts.drain(first..behind);
            if parts.is_empty() {
                self.chunks.remove(chunk);
            } else {
                chunk += 1;
            }
        }
    }
}
