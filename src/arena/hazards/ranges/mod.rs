//! Which streams may still use free parts of a range: what whoever gets them next must wait for.

mod order;
mod parts;
mod streams;
#[cfg(test)]
mod tests;

pub(crate) use order::StreamOrder;
use order::{Wait, Waits};
use parts::{Part, Parts};
use smallvec::SmallVec;
use std::mem;
use std::ops::Range;
pub(crate) use streams::{Streams, add};
use vrampool_backend::{Stream, StreamId};

/// Streams, each once, with the era of the last free of theirs that is to be waited for.
pub(crate) type Awaited<S> = SmallVec<[(S, u64); 1]>;

/// So many handles that are to be dropped are kept at most, and those of one free.
const GONE: usize = 8;

/// A part is of one era as a whole up to so many times the bytes that were freed in it.
const WHOLE: u64 = 16;

/// As [`WHOLE`], of a part that is done with: nobody waited for the rest of it.
const WHOLE_DONE: u64 = 2;

/// Adds a stream, or that a later free of it counts.
pub(crate) fn await_also<S: Stream>(awaited: &mut Awaited<S>, stream: &S, era: u64) {
    match awaited.iter_mut().find(|(known, _)| known.id() == stream.id()) {
        Some((_, known)) => *known = era.max(*known),
        None => awaited.push((stream.clone(), era)),
    }
}

/// Disjoint parts of a range with the streams that used them last. A free costs an entry here and no event;
/// neighbours of the same streams are one entry.
///
/// What a stream gets that it alone used, or all users of which it is behind, may stay here, under the block,
/// until the block is freed: what is here of live bytes does not matter, because freeing them says it anew.
/// So a program with one stream has one entry, from the start to the highest byte it ever had, and that is a
/// known one: nothing is looked up. Two are known, because a growing arena has two parts.
///
/// A stream that waits for another is behind all that the other did up to some point. So it need not wait
/// again for what the other freed before that: such a point begins an era, parts have the era of their last
/// free, and who waited for whom up to which one is known, and who is done up to which one.
#[derive(Debug)]
pub(crate) struct Unsettled<S> {
    parts: Parts<S>,
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

impl<S: Stream> Unsettled<S> {
    pub(crate) fn new() -> Self {
        Self {
            parts: Parts::new(),
            known: Default::default(),
            era: 0,
            waits: Waits::default(),
            gone: Streams::new(),
        }
    }

    /// One in place of another, of other bytes: no era that began there is one of here, whenever its answer
    /// comes.
    pub(crate) fn after(before: &mut Self) -> Self {
        let mut new = Self::new();
        new.era = before.begin_era() + 1;
        new
    }

    /// Whether all of `range` is down as freed by the stream in this era, so that nothing has to be put there
    /// when it was the only user.
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

    /// The era that is not over yet.
    pub(crate) fn era(&self) -> u64 {
        self.era
    }

    /// Somebody waits from now on, or gets a point. To be called before that is asked of the device; answers the
    /// era that is over, for [`waited`](Self::waited) or [`done`](Self::done).
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

    /// Whether what `user` did until that era was over is known to be done.
    pub(crate) fn is_done(&self, user: StreamId, era: u64) -> bool {
        self.waits.are_done(user, era)
    }

    /// How far `stream` is behind others.
    pub(crate) fn reach(&self, stream: &S) -> StreamOrder {
        self.waits.reach(stream.id())
    }

    /// The parts that overlap `range`, in order: each part's range, and how late whoever `reach` is of would
    /// be behind those who freed it. That is the latest answer of `point`, which is asked of each that it
    /// would have to wait for and its era; none if it need not wait.
    pub(crate) fn lateness(
        &self,
        range: &Range<u64>,
        reach: &StreamOrder,
        point: impl Fn(StreamId, u64) -> u64,
    ) -> impl Iterator<Item = (Range<u64>, Option<u64>)> {
        self.parts.overlapping(range).map(move |Part { start, end, streams, era, .. }| {
            let open = streams.iter().map(Stream::id).filter(|user| !reach.covers(*user, *era));
            (*start..*end, open.map(|user| point(user, *era)).max())
        })
    }

    /// The parts that overlap `range`, in order, and whether one of those who freed each is such, which is
    /// told the part's era.
    pub(crate) fn parts_with(
        &self,
        range: &Range<u64>,
        is_such: impl Fn(StreamId, u64) -> bool,
    ) -> impl Iterator<Item = (Range<u64>, bool)> {
        self.parts
            .overlapping(range)
            .map(move |part| (part.start..part.end, part.has(|user| is_such(user, part.era))))
    }

    /// Whether no other stream than this one had any of `range` last.
    #[inline]
    pub(crate) fn is_nobody_elses(&self, range: &Range<u64>, stream: &S) -> bool {
        let [first, second] = &self.known;
        first.holds(range, stream)
            || second.holds(range, stream)
            || self.parts_with(range, |user, _| user != stream.id()).all(|(_, is_anothers)| !is_anothers)
    }

    /// From now on `range` is free and `streams` used it last. Answers handles that may be the last ones, of
    /// others that parts here had: to be dropped without the lock, and no list of all who used the range
    /// before.
    #[must_use]
    pub(crate) fn put(&mut self, range: Range<u64>, streams: Streams<S>) -> Streams<S> {
        self.put_of(range, streams, self.era)
    }

    fn put_of(&mut self, range: Range<u64>, streams: Streams<S>, era: u64) -> Streams<S> {
        if range.is_empty() || streams.is_empty() {
            return self.take(range);
        }
        let ids: SmallVec<[StreamId; 4]> = streams.iter().map(Stream::id).collect();
        let mut gone = Streams::<S>::new();
        let tell = |users: Streams<S>| {
            // None of those that are put is the last handle.
            for user in users {
                if !ids.contains(&user.id()) && gone.iter().all(|known| known.id() != user.id()) {
                    gone.push(user);
                }
            }
        };
        let Range { start, end } = self.parts.put(Part::new(range, streams, era), tell);
        for known in &mut self.known {
            if known.start < end && start < known.end {
                *known = Known::default();
            }
        }
        if let [stream] = &*ids {
            self.know(Known { start, end, stream: stream.get(), era });
        }
        gone
    }

    /// As [`put`](Self::put) for one stream, without a lock's being let go: what that answers is kept until
    /// it is [taken](Self::take_gone). Does nothing, and answers no, if there are too many already.
    #[inline]
    pub(crate) fn put_own(&mut self, range: Range<u64>, stream: &S) -> bool {
        let is_here = |known: &Known| known.holds(&range, stream) && known.era == self.era;
        self.known.iter().any(is_here) || self.put_own_anew(range, stream)
    }

    #[cold]
    fn put_own_anew(&mut self, range: Range<u64>, stream: &S) -> bool {
        if self.renew(&range, stream) {
            return true;
        }
        if self.gone.len() >= GONE {
            return false;
        }
        self.put_late(range, [stream.clone()].into_iter().collect(), self.era);
        true
    }

    /// Has all of the part that `range` is in be of this era, if it is the stream's alone and not much
    /// larger: who gets the rest of it waits longer than he must, which is on the safe side, and neither the
    /// part nor the next search for it is cut in pieces.
    fn renew(&mut self, range: &Range<u64>, stream: &S) -> bool {
        let (id, era, bytes, waits) = (stream.id(), self.era, range.end - range.start, &self.waits);
        let is_whole = |part: &Part<S>| {
            let is_within = |most: u64| part.end - part.start <= most.saturating_mul(bytes);
            part.era == era || is_within(WHOLE_DONE) || is_within(WHOLE) && !waits.are_done(id, part.era)
        };
        let part = self.parts.at_mut(range.start).filter(|part| part.is_of(id) && range.end <= part.end);
        let Some(part) = part.filter(|part| is_whole(part)) else { return false };
        part.era = era;
        let known = Known { start: part.start, end: part.end, stream: id.get(), era };
        self.know(known);
        true
    }

    /// As [`put`](Self::put) of what they had freed in that era, without a lock's being let go: what that
    /// answers is kept until it is [taken](Self::take_gone).
    pub(crate) fn put_late(&mut self, range: Range<u64>, streams: Streams<S>, era: u64) {
        let gone = self.put_of(range, streams, era);
        self.keep_gone(gone);
    }

    /// Keeps handles until they are [taken](Self::take_gone), of each stream one: with that no other is the
    /// last.
    pub(crate) fn keep_gone(&mut self, streams: Streams<S>) {
        streams.iter().for_each(|stream| add(&mut self.gone, stream));
    }

    /// `range` is about to be handed out to `stream`: returns all others that used any part of it and that it
    /// is not behind, if there are any. They stay here: freeing the range says anew who used it, and a
    /// request that fails changes nothing.
    #[inline]
    pub(crate) fn awaited_for(&mut self, range: &Range<u64>, stream: &S) -> Option<Awaited<S>> {
        if self.is_settled(range, stream) { None } else { self.others_of(range, stream) }
    }

    /// Whether there is nobody whom a stream that `range` is handed out to has to wait for. What is here
    /// stays as it is then.
    #[inline]
    pub(crate) fn is_settled_for(&mut self, range: &Range<u64>, stream: &S) -> bool {
        self.is_settled(range, stream) || self.has_no_others(range, stream)
    }

    #[cold]
    fn has_no_others(&self, range: &Range<u64>, stream: &S) -> bool {
        let is_open = |user, era| user != stream.id() && !self.waits.cover(user, stream.id(), era);
        self.parts.overlapping(range).all(|part| !part.has(|user| is_open(user, part.era)))
    }

    #[cold]
    fn others_of(&self, range: &Range<u64>, stream: &S) -> Option<Awaited<S>> {
        let mut others = Awaited::new();
        for Part { streams, era, .. } in self.parts.overlapping(range) {
            for user in streams.iter().filter(|user| user.id() != stream.id()) {
                if !self.waits.cover(user.id(), stream.id(), *era) {
                    await_also(&mut others, user, *era);
                }
            }
        }
        (!others.is_empty()).then_some(others)
    }

    /// Handles that are to be dropped without the lock.
    #[inline]
    pub(crate) fn take_gone(&mut self) -> Streams<S> {
        if self.gone.is_empty() { Streams::new() } else { mem::take(&mut self.gone) }
    }

    /// Finds the part with the start of `range`, if it is the stream's; answers its era if all of the range
    /// is in it.
    #[cold]
    fn becomes_known_as(&mut self, range: &Range<u64>, stream: &S) -> Option<u64> {
        let part = self.parts.at(range.start).filter(|part| part.is_of(stream.id()))?;
        let (era, known) =
            (part.era, Known { start: part.start, end: part.end, stream: stream.id().get(), era: part.era });
        let holds = known.holds(range, stream);
        self.know(known);
        holds.then_some(era)
    }

    /// In place of the one that was known longer.
    fn know(&mut self, known: Known) {
        self.known.swap(0, 1);
        self.known[0] = known;
    }

    /// All streams that used any part of `range` and are not known to be done with that, as far as it is
    /// free: of what is live it may say less, or who used it before.
    pub(crate) fn users_in(&self, range: &Range<u64>) -> Streams<S> {
        let mut used = Streams::new();
        for Part { streams, era, .. } in self.parts.overlapping(range) {
            let open = streams.iter().filter(|user| !self.is_done(user.id(), *era));
            open.for_each(|stream| add(&mut used, stream));
        }
        used
    }

    /// Forgets `range`, and answers all streams that used any part of it and are not known to be done with
    /// that.
    pub(crate) fn take(&mut self, range: Range<u64>) -> Streams<S> {
        let (mut used, mut gone) = (Streams::new(), mem::take(&mut self.gone));
        self.take_each(range, |waits, Part { streams, era, .. }| {
            for user in streams {
                // None of these that goes is the last handle: the one that is there is another.
                add(if waits.are_done(user.id(), era) { &mut gone } else { &mut used }, &user);
            }
        });
        self.gone = gone;
        used
    }

    /// Forgets `range`, of which it tells each part.
    fn take_each(&mut self, range: Range<u64>, mut tell: impl FnMut(&Waits, Part<S>)) {
        if range.is_empty() {
            return;
        }
        self.known = Default::default();
        let Self { parts, waits, .. } = self;
        parts.cut(&range, |part| tell(waits, part));
    }
}
