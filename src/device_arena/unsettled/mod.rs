//! Which streams may still use free parts of a range: what whoever gets them next must wait for.

mod waits;

use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;
use vrampool_backend::{Stream, StreamId};
use waits::{Wait, Waits};

/// Streams, each once; hardly ever more than one.
pub(crate) type Streams<S> = SmallVec<[S; 1]>;

/// Streams, each once, with the era of the last free of theirs that is to be waited for.
pub(crate) type Awaited<S> = SmallVec<[(S, u64); 1]>;

/// Adds a stream, or that a later free of it counts.
pub(crate) fn await_also<S: Stream>(awaited: &mut Awaited<S>, stream: &S, era: u64) {
    match awaited.iter_mut().find(|(known, _)| known.id() == stream.id()) {
        Some((_, known)) => *known = era.max(*known),
        None => awaited.push((stream.clone(), era)),
    }
}

/// Adds a stream that is not among them.
pub(crate) fn add<S: Stream>(streams: &mut Streams<S>, stream: &S) {
    if streams.iter().all(|known| known.id() != stream.id()) {
        streams.push(stream.clone());
    }
}

/// Disjoint parts of a range with the streams that used them last. A free costs an entry here and no event; neighbours
/// of the same streams are one entry.
///
/// What a stream gets that it alone used stays here, under the block, until the block is freed: what is here of live bytes
/// does not matter, because freeing them says it anew. So a program with one stream has one entry, from the start to the
/// highest byte it ever had, and that is a known one: nothing is looked up. Two are known, because a growing arena has two
/// parts.
///
/// A stream that waits for another is behind all that the other did up to some point. So it need not wait again for what the other
/// freed before that: such a point begins an era, parts have the era of their last free, and who waited for whom up to which one
/// is known, and who is done up to which one.
#[derive(Debug)]
pub(crate) struct Unsettled<S> {
    /// By start.
    parts: BTreeMap<u64, Part<S>>,
    known: [Known; 2],
    era: u64,
    waits: Waits,
    /// Of streams that a block's new one is behind already: one of these may be the last handle.
    gone: Streams<S>,
}

/// One of the parts that only one stream used; an empty one when none is known.
#[derive(Debug, Default)]
struct Known {
    start: u64,
    end: u64,
    stream: u64,
    era: u64,
}

impl Known {
    /// Whether it is the stream's, and the range in it.
    #[inline]
    fn holds(&self, range: &Range<u64>, stream: &impl Stream) -> bool {
        self.stream == stream.id().get() && self.start <= range.start && range.end <= self.end
    }
}

#[derive(Debug)]
struct Part<S> {
    end: u64,
    streams: Streams<S>,
    /// In which it was freed.
    era: u64,
}

impl<S: Stream> Unsettled<S> {
    pub(crate) fn new() -> Self {
        Self {
            parts: BTreeMap::new(),
            known: Default::default(),
            era: 0,
            waits: Waits::default(),
            gone: Streams::new(),
        }
    }

    /// One in place of another, of other bytes: no era that began there is one of here, whenever its answer comes.
    pub(crate) fn after(before: &mut Self) -> Self {
        let mut new = Self::new();
        new.era = before.begin_era() + 1;
        new
    }

    /// Whether all of `range` is down as freed by the stream in this era, so that nothing has to be put there when it was the
    /// only user.
    #[inline]
    pub(crate) fn is_of(&mut self, range: &Range<u64>, stream: &S) -> bool {
        let [first, second] = &self.known;
        let holds = |known: &Known| known.holds(range, stream) && known.era == self.era;
        holds(first) || holds(second) || self.becomes_known_as(range, stream) == Some(self.era)
    }

    /// Whether all of `range` is down as the stream's alone.
    #[inline]
    fn is_settled(&mut self, range: &Range<u64>, stream: &S) -> bool {
        let [first, second] = &self.known;
        first.holds(range, stream)
            || second.holds(range, stream)
            || self.becomes_known_as(range, stream).is_some()
    }

    /// Somebody waits from now on, or is marked. To be called before that is asked of the device; answers the era that is over, for
    /// [`waited`](Self::waited) or [`done`](Self::done).
    pub(crate) fn begin_era(&mut self) -> u64 {
        self.era += 1;
        self.era - 1
    }

    /// `stream` is behind all that `user` did until that era was over.
    pub(crate) fn waited(&mut self, user: &S, stream: &S, era: u64) {
        self.waits.add(Wait { user: user.id(), stream: Some(stream.id()), era });
    }

    /// What `user` did until that era was over is done.
    pub(crate) fn done(&mut self, user: StreamId, era: u64) {
        self.waits.add(Wait { user, stream: None, era });
    }

    /// How late `stream` would be behind those who freed any part of `range`: the latest answer of `point`, which is asked of each that
    /// it would have to wait for and its era; none if it need not wait. Looks no further once that is not before `enough`.
    pub(crate) fn latest(
        &self,
        range: &Range<u64>,
        stream: &S,
        enough: u64,
        point: impl Fn(StreamId, u64) -> u64,
    ) -> Option<u64> {
        let mut latest = None;
        for (_, Part { streams, era, .. }) in self.parts_in(range) {
            let others = streams.iter().map(Stream::id).filter(|user| *user != stream.id());
            let open = others.filter(|user| !self.waits.cover(*user, stream.id(), *era));
            latest = latest.max(open.map(|user| point(user, *era)).max());
            if latest >= Some(enough) {
                break;
            }
        }
        latest
    }

    /// Where parts start in `range`.
    pub(crate) fn starts_in(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        self.parts.range(range).map(|(&start, _)| start)
    }

    /// From now on `range` is free and `streams` used it last. Answers those who did before.
    #[must_use]
    pub(crate) fn put(&mut self, range: Range<u64>, streams: Streams<S>) -> Streams<S> {
        let before = self.take(range.clone());
        if range.is_empty() || streams.is_empty() {
            return before;
        }
        let Range { mut start, mut end } = range;
        if let Some((&before, part)) = self.parts.range(..start).next_back()
            && part.end == start
            && part.era == self.era
            && same(&part.streams, &streams)
        {
            start = before;
        }
        if let Some(part) = self.parts.get(&end)
            && part.era == self.era
            && same(&part.streams, &streams)
        {
            let behind = end;
            end = part.end;
            self.parts.remove(&behind);
        }
        if let [stream] = &*streams {
            self.know(Known { start, end, stream: stream.id().get(), era: self.era });
        }
        self.parts.insert(start, Part { end, streams, era: self.era });
        before
    }

    /// `range` is handed out to `stream`: answers all others that used any part of it and that it is not behind, if there are
    /// any.
    #[inline]
    pub(crate) fn take_for(&mut self, range: Range<u64>, stream: &S) -> Option<Awaited<S>> {
        if self.is_settled(&range, stream) { None } else { self.take_others(range, stream) }
    }

    /// As [`take_for`](Self::take_for), but does nothing if there are any. Answers whether there are none.
    #[inline]
    pub(crate) fn take_if_settled(&mut self, range: Range<u64>, stream: &S) -> bool {
        self.is_settled(&range, stream) || self.take_without_others(range, stream)
    }

    #[cold]
    fn take_without_others(&mut self, range: Range<u64>, stream: &S) -> bool {
        let mut parts = self.parts_in(&range);
        let is_behind = parts.all(|(_, Part { streams, era, .. })| {
            let others = || streams.iter().filter(|user| user.id() != stream.id());
            others().all(|user| self.waits.cover(user.id(), stream.id(), *era))
        });
        drop(parts);
        is_behind && self.take_others(range, stream).is_none()
    }

    #[cold]
    fn take_others(&mut self, range: Range<u64>, stream: &S) -> Option<Awaited<S>> {
        let (mut others, mut gone) = (Awaited::new(), mem::take(&mut self.gone));
        self.take_each(range, |waits, Part { streams, era, .. }| {
            for user in streams.iter().filter(|user| user.id() != stream.id()) {
                match waits.cover(user.id(), stream.id(), *era) {
                    true => add(&mut gone, user),
                    false => await_also(&mut others, user, *era),
                }
            }
        });
        self.gone = gone;
        (!others.is_empty()).then_some(others)
    }

    /// The parts that overlap a range.
    fn parts_in(&self, range: &Range<u64>) -> impl Iterator<Item = (&u64, &Part<S>)> {
        let Range { start, end } = *range;
        let first = self.parts.range(..start).next_back().filter(|(_, part)| part.end > start && start < end);
        first.into_iter().chain(self.parts.range(start..end.max(start)))
    }

    /// Handles that are to be dropped without the lock.
    #[inline]
    pub(crate) fn take_gone(&mut self) -> Streams<S> {
        if self.gone.is_empty() { Streams::new() } else { mem::take(&mut self.gone) }
    }

    /// All streams that used any part.
    pub(crate) fn users(&self) -> Streams<S> {
        let mut users = Streams::new();
        self.parts.values().flat_map(|part| &part.streams).for_each(|stream| add(&mut users, stream));
        users
    }

    /// Finds the part with the start of `range`, if it is the stream's; answers its era if all of the range is in it.
    #[cold]
    fn becomes_known_as(&mut self, range: &Range<u64>, stream: &S) -> Option<u64> {
        let (&start, part) = self.parts.range(..=range.start).next_back()?;
        if part.streams.iter().any(|user| user.id() != stream.id()) {
            return None;
        }
        let (era, known) =
            (part.era, Known { start, end: part.end, stream: stream.id().get(), era: part.era });
        let holds = known.holds(range, stream);
        self.know(known);
        holds.then_some(era)
    }

    /// In place of the one that was known longer.
    fn know(&mut self, known: Known) {
        self.known.swap(0, 1);
        self.known[0] = known;
    }

    /// All streams that used any part of `range`, as far as it is free: of what is live it may say less.
    pub(crate) fn users_in(&self, range: &Range<u64>) -> Streams<S> {
        let mut used = Streams::new();
        if range.is_empty() {
            return used;
        }
        let users = self.parts_in(range).flat_map(|(_, part)| &part.streams);
        users.for_each(|stream| add(&mut used, stream));
        used
    }

    /// Forgets `range`, and answers all streams that used any part of it.
    pub(crate) fn take(&mut self, range: Range<u64>) -> Streams<S> {
        let mut used = Streams::new();
        self.take_each(range, |_, part| part.streams.iter().for_each(|stream| add(&mut used, stream)));
        used
    }

    /// Forgets `range`, of which it tells each part.
    fn take_each(&mut self, range: Range<u64>, mut tell: impl FnMut(&Waits, &Part<S>)) {
        if range.is_empty() {
            return;
        }
        self.known = Default::default();
        // The last part that starts before the range may reach into it.
        if let Some((_, part)) = self.parts.range_mut(..range.start).next_back()
            && part.end > range.start
        {
            let rest = Part { end: part.end, streams: part.streams.clone(), era: part.era };
            part.end = range.start;
            self.parts.insert(range.start, rest);
        }
        while let Some((&start, _)) = self.parts.range(range.clone()).next() {
            let Some(part) = self.parts.remove(&start) else { break };
            tell(&self.waits, &part);
            if part.end > range.end {
                self.parts.insert(range.end, part);
            }
        }
    }
}

fn same<S: Stream>(left: &Streams<S>, right: &Streams<S>) -> bool {
    left.len() == right.len() && left.iter().all(|one| right.iter().any(|other| one.id() == other.id()))
}

#[cfg(test)]
mod tests;
