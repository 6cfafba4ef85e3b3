//! Disjoint parts of a range, by offset.
//!
//! They are a sorted list in chunks. Mostly there is one chunk, which is searched and changed faster than a
//! tree. With many parts, a change moves only those of one chunk.

use crate::streams::uses::Uses;
use std::mem;
use std::ops::Range;
use vrampool_backend::{Stream, StreamId};

/// Most parts of a chunk.
const CHUNK: usize = if cfg!(test) { 4 } else { 64 };

#[derive(Debug)]
pub(crate) struct Part<S> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(super) uses: Uses<S>,
    /// The writer, if it is the only user: read without access to the stream.
    only: Option<StreamId>,
    /// The tick of the free.
    pub(super) tick: u64,
}

#[derive(Debug)]
pub(super) struct Parts<S> {
    /// None of the chunks is empty.
    chunks: Vec<Vec<Part<S>>>,
}

/// The parts that overlap a range, by offset.
#[derive(Debug)]
pub(super) struct Overlapping<'a, S> {
    /// The chunk of the next part, and the chunks after it.
    chunks: &'a [Vec<Part<S>>],
    /// The next part's index in the first chunk.
    place: usize,
    range: Range<u64>,
}

impl<'a, S> Iterator for Overlapping<'a, S> {
    type Item = &'a Part<S>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while let Some((first, others)) = self.chunks.split_first() {
            let Some(part) = first.get(self.place) else {
                (self.chunks, self.place) = (others, 0);
                continue;
            };
            self.place += 1;
            let Range { start, end } = self.range;
            if start >= end || part.start >= end {
                break;
            }
            if part.end > start {
                return Some(part);
            }
        }
        self.chunks = &[];
        None
    }
}

impl<S: Stream> Part<S> {
    pub(super) fn new(range: Range<u64>, uses: Uses<S>, tick: u64) -> Self {
        let only = uses.only_user().map(Stream::id);
        Self { start: range.start, end: range.end, uses, only, tick }
    }

    /// Whether the stream is the only user.
    #[inline]
    pub(super) fn is_of(&self, stream: StreamId) -> bool {
        self.only == Some(stream)
    }

    /// Whether `is_such` holds for one of the streams, with the tick.
    #[inline]
    pub(crate) fn has(&self, mut is_such: impl FnMut(StreamId, u64) -> bool) -> bool {
        match self.only {
            Some(stream) => is_such(stream, self.tick),
            None => self.uses.ids().into_iter().any(|stream| is_such(stream, self.tick)),
        }
    }

    /// Whether another stream than `stream` wrote it last, or one that is not `done` uses it.
    #[inline]
    pub(super) fn is_anothers(&self, stream: StreamId, done: impl Fn(StreamId) -> bool) -> bool {
        let is_open = |user, _| user != stream && !done(user);
        match self.only {
            Some(user) => user != stream,
            None => self.uses.writer.id() != stream || self.has(is_open),
        }
    }

    /// Whether both have the same users and tick.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        self.tick == other.tick
            && self.only == other.only
            && (self.only.is_some() || self.uses.is_alike(&other.uses))
    }

    fn within(&self, range: &Range<u64>) -> Self {
        let (start, end) = (self.start.max(range.start), self.end.min(range.end));
        Self { start, end, uses: self.uses.clone(), ..*self }
    }
}

impl<S: Stream> Parts<S> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Part<S>> {
        self.chunks.iter().flatten()
    }

    /// Returns the last part that starts at or before `offset`.
    pub(super) fn at(&self, offset: u64) -> Option<&Part<S>> {
        let (chunk, place) = self.place(offset)?;
        self.chunks.get(chunk)?.get(place)
    }

    pub(super) fn at_mut(&mut self, offset: u64) -> Option<&mut Part<S>> {
        let (chunk, place) = self.place(offset)?;
        self.chunks.get_mut(chunk)?.get_mut(place)
    }

    #[inline]
    pub(super) fn overlapping(&self, range: &Range<u64>) -> Overlapping<'_, S> {
        let (chunk, place) = self.place(range.start).unwrap_or_default();
        Overlapping { chunks: self.chunks.get(chunk..).unwrap_or_default(), place, range: range.clone() }
    }

    /// Replaces everything in the range of a part that is not empty, and joins it with
    /// [alike](Part::is_alike) neighbours. Passes the users of removed parts to `tell`; other parts may have
    /// the same streams. Returns the range of the joined part.
    pub(super) fn put(&mut self, mut new: Part<S>, mut tell: impl FnMut(Uses<S>)) -> Range<u64> {
        let (start, end) = (new.start, new.end);
        let (chunk, at) = self.place(start).unwrap_or_default();
        if self.is_at_edge(chunk, at, end) {
            return self.put_across(new, tell);
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
                let rest = (left.end > end).then(|| left.within(&(end..u64::MAX)));
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
                tell(mem::replace(place, new).uses);
                parts.drain(first + 1..behind).for_each(|dropped| tell(dropped.uses));
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
        let is_next = |last: &Part<S>| last.end <= end && next.is_some_and(|next| next.start <= end);
        at == 0 && chunk > 0 || last.is_none_or(is_next)
    }

    /// As [`put`](Self::put), across chunks.
    #[cold]
    fn put_across(&mut self, mut new: Part<S>, mut tell: impl FnMut(Uses<S>)) -> Range<u64> {
        self.cut(&(new.start..new.end), |part| tell(part.uses));
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
    fn remove_if(&mut self, offset: u64, is_such: impl FnOnce(&Part<S>) -> bool) -> Option<Part<S>> {
        let (chunk, place) = self.place(offset)?;
        if !is_such(self.chunks.get(chunk)?.get(place)?) {
            return None;
        }
        let part = self.chunks[chunk].remove(place);
        self.drop_if_empty(chunk);
        Some(part)
    }

    /// Adds a part that overlaps no other.
    fn insert(&mut self, part: Part<S>) {
        let (chunk, place) = match self.place(part.start) {
            Some((chunk, place)) => (chunk, place + 1),
            None => (0, 0),
        };
        if self.chunks.is_empty() {
            self.chunks.push(Vec::with_capacity(CHUNK + 2));
        }
        self.chunks[chunk].insert(place, part);
        self.split_if_full(chunk);
    }

    fn split_if_full(&mut self, chunk: usize) {
        let parts = &mut self.chunks[chunk];
        if parts.len() > CHUNK {
            let mut back = Vec::with_capacity(CHUNK + 2);
            back.extend(parts.drain(CHUNK / 2..));
            self.chunks.insert(chunk + 1, back);
        }
    }

    /// Removes `range`, and passes each removed portion to `tell`.
    pub(super) fn cut(&mut self, range: &Range<u64>, mut tell: impl FnMut(Part<S>)) {
        if range.is_empty() {
            return;
        }
        let (mut chunk, mut place) = self.place(range.start).unwrap_or_default();
        if let Some(part) = self.chunks.get_mut(chunk).and_then(|parts| parts.get_mut(place))
            && part.start < range.start
        {
            // The part may extend into the range, or beyond it.
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

    /// Returns the chunk and index of the last part that starts at or before `offset`.
    #[inline]
    fn place(&self, offset: u64) -> Option<(usize, usize)> {
        let starts = |part: &Part<S>| part.start <= offset;
        let chunk = self.chunks.partition_point(|parts| parts.first().is_some_and(starts)).checked_sub(1)?;
        Some((chunk, self.chunks[chunk].partition_point(starts) - 1))
    }
}
