//! Disjoint parts of a range, by offset. A sorted list in chunks: mostly there is one chunk, which is searched and changed faster than a
//! tree; and where there are many parts a change moves those of one chunk alone.

use super::Streams;
use std::ops::Range;

/// So many parts are in a chunk at most.
const CHUNK: usize = if cfg!(test) { 4 } else { 64 };

#[derive(Debug)]
pub(super) struct Part<S> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) streams: Streams<S>,
    /// In which it was freed.
    pub(super) era: u64,
}

#[derive(Debug)]
pub(super) struct Parts<S> {
    /// None is empty.
    chunks: Vec<Vec<Part<S>>>,
}

impl<S: Clone> Part<S> {
    /// What of it is in `range`.
    fn within(&self, range: &Range<u64>) -> Self {
        let (start, end) = (self.start.max(range.start), self.end.min(range.end));
        Self { start, end, streams: self.streams.clone(), era: self.era }
    }
}

impl<S: Clone> Parts<S> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Part<S>> {
        self.chunks.iter().flatten()
    }

    /// The last one that starts there or before.
    pub(super) fn at(&self, offset: u64) -> Option<&Part<S>> {
        let (chunk, place) = self.place(offset)?;
        self.chunks.get(chunk)?.get(place)
    }

    /// As [`at`](Self::at).
    pub(super) fn at_mut(&mut self, offset: u64) -> Option<&mut Part<S>> {
        let (chunk, place) = self.place(offset)?;
        self.chunks.get_mut(chunk)?.get_mut(place)
    }

    /// Those that overlap `range`.
    pub(super) fn overlapping<'a>(
        &'a self,
        range: &Range<u64>,
    ) -> impl Iterator<Item = &'a Part<S>> + use<'a, S> {
        let Range { start, end } = *range;
        let (chunk, place) = self.place(start).unwrap_or_default();
        let first = self.chunks.get(chunk).and_then(|parts| parts.get(place..)).unwrap_or_default();
        let others = self.chunks.get(chunk + 1..).unwrap_or_default().iter().flatten();
        let from_first = first.iter().chain(others).skip_while(move |part| part.end <= start);
        from_first.take_while(move |part| start < end && part.start < end)
    }

    /// Takes the last one that starts there or before, if it is such.
    pub(super) fn remove_if(
        &mut self,
        offset: u64,
        is_such: impl FnOnce(&Part<S>) -> bool,
    ) -> Option<Part<S>> {
        let (chunk, place) = self.place(offset)?;
        if !is_such(self.chunks.get(chunk)?.get(place)?) {
            return None;
        }
        let part = self.chunks[chunk].remove(place);
        self.drop_if_empty(chunk);
        Some(part)
    }

    /// Adds one that overlaps no other.
    pub(super) fn insert(&mut self, part: Part<S>) {
        let (chunk, place) = match self.place(part.start) {
            Some((chunk, place)) => (chunk, place + 1),
            None => (0, 0),
        };
        if self.chunks.is_empty() {
            self.chunks.push(Vec::with_capacity(CHUNK + 1));
        }
        let parts = &mut self.chunks[chunk];
        parts.insert(place, part);
        if parts.len() > CHUNK {
            let mut back = Vec::with_capacity(CHUNK + 1);
            back.extend(parts.drain(CHUNK / 2..));
            self.chunks.insert(chunk + 1, back);
        }
    }

    /// Takes `range` out of them, of which it tells each part.
    pub(super) fn cut(&mut self, range: &Range<u64>, mut tell: impl FnMut(Part<S>)) {
        if range.is_empty() {
            return;
        }
        let (mut chunk, mut place) = self.place(range.start).unwrap_or_default();
        if let Some(part) = self.chunks.get_mut(chunk).and_then(|parts| parts.get_mut(place))
            && part.start < range.start
        {
            // It may reach into the range, or beyond it.
            place += 1;
            if part.end > range.start {
                let rest = part.within(&(range.end..u64::MAX));
                tell(part.within(range));
                part.end = range.start;
                if rest.start < rest.end {
                    self.insert(rest);
                    return;
                }
            }
        }
        while let Some(parts) = self.chunks.get_mut(chunk) {
            let behind = place + parts[place..].partition_point(|part| part.end <= range.end);
            parts.drain(place..behind).for_each(&mut tell);
            if let Some(part) = parts.get_mut(place) {
                if part.start < range.end {
                    let told = part.within(range);
                    part.start = range.end;
                    tell(told);
                }
                self.drop_if_empty(chunk);
                return;
            }
            place = 0;
            if !self.drop_if_empty(chunk) {
                chunk += 1;
            }
        }
    }

    fn drop_if_empty(&mut self, chunk: usize) -> bool {
        let is_empty = self.chunks.get(chunk).is_some_and(Vec::is_empty);
        if is_empty {
            self.chunks.remove(chunk);
        }
        is_empty
    }

    /// Where the last one is that starts there or before: its chunk, and its place in that.
    #[inline]
    fn place(&self, offset: u64) -> Option<(usize, usize)> {
        let starts = |part: &Part<S>| part.start <= offset;
        let chunk = self.chunks.partition_point(|parts| parts.first().is_some_and(starts)).checked_sub(1)?;
        Some((chunk, self.chunks[chunk].partition_point(starts) - 1))
    }
}
