//! Streams that may still use free parts of a range: the next user of a part must wait for them.

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

/// Streams to wait for, each once, with the era of its last free.
pub(crate) type Awaited<S> = SmallVec<[(S, u64); 1]>;

/// Most kept handles that await a drop, besides those of one free.
const GONE: usize = 8;

/// A part is renewed as a whole if it has at most so many times the bytes that are freed in it.
const WHOLE: u64 = 16;

/// As [`WHOLE`], for a part whose user is complete: the rest of it would need no wait.
const WHOLE_DONE: u64 = 2;

/// Adds a stream, or raises its era.
pub(crate) fn await_also<S: Stream>(awaited: &mut Awaited<S>, stream: &S, era: u64) {
    match awaited.iter_mut().find(|(known, _)| known.id() == stream.id()) {
        Some((_, known)) => *known = era.max(*known),
        None => awaited.push((stream.clone(), era)),
    }
}

/// Disjoint parts of a range with the streams that used them last.
///
/// A free costs an entry here and no event. Adjacent parts of the same streams are one entry.
///
/// Entries may remain under a live block, if its stream was the only user of the bytes or is ordered after
/// all users. The entries of live bytes are irrelevant, because the next free replaces them. A program with
/// one stream therefore has one entry, from the start to the highest byte ever used. That entry is cached in
/// `known`, so nothing is looked up. Two entries are cached, because a growing arena has two parts.
///
/// A stream that waits for another is ordered after the other's work up to some point, and need not wait
/// again for what the other freed before. Such a point begins an era. A part stores the era of its last free.
/// `waits` stores up to which era each stream is ordered after another, and up to which era a stream is
/// complete.
#[derive(Debug)]
pub(crate) struct Unsettled<S> {
    parts: Parts<S>,
    known: [Known; 2],
    era: u64,
    waits: Waits,
    /// Handles of streams that their parts no longer have: one of these may be the last handle.
    gone: Streams<S>,
}

/// A cached part that only one stream used; empty if unset.
#[derive(Debug, Default)]
struct Known {
    start: u64,
    end: u64,
    stream: u64,
    era: u64,
}

impl Known {
    /// Whether the part is the stream's and contains the range.
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

    /// Creates the state for another range. Its eras are all later, so pending results do not apply to it.
    pub(crate) fn after(before: &mut Self) -> Self {
        let mut new = Self::new();
        new.era = before.begin_era() + 1;
        new
    }

    /// Whether `range` is recorded as freed by only this stream in this era: its free then records nothing.
    #[inline]
    pub(crate) fn is_of(&mut self, range: &Range<u64>, stream: &S) -> bool {
        let [first, second] = &self.known;
        let holds = |known: &Known| known.holds(range, stream) && known.era == self.era;
        holds(first) || holds(second) || self.becomes_known_as(range, stream) == Some(self.era)
    }

    /// Whether `range` is recorded as used by the stream alone.
    #[inline]
    fn is_settled(&mut self, range: &Range<u64>, stream: &S) -> bool {
        let [first, second] = &self.known;
        first.holds(range, stream)
            || second.holds(range, stream)
            || self.becomes_known_as(range, stream).is_some()
    }

    pub(crate) fn era(&self) -> u64 {
        self.era
    }

    /// Ends an era, because a stream is about to wait or to get a point. Must be called before the device
    /// call. Returns the ended era, for [`waited`](Self::waited) or [`done`](Self::done).
    pub(crate) fn begin_era(&mut self) -> u64 {
        self.era += 1;
        self.era - 1
    }

    /// Records that `stream` is ordered after the work of `user` up to the end of `era`.
    pub(crate) fn waited(&mut self, user: &S, stream: &S, era: u64) {
        self.waits.add(Wait { user: user.id(), stream: Some(stream.id()), era });
    }

    /// Records that the work of `user` up to the end of `era` is complete.
    pub(crate) fn done(&mut self, user: StreamId, era: u64) {
        self.waits.add(Wait { user, stream: None, era });
    }

    /// Whether the work of `user` up to the end of `era` is known to be complete.
    pub(crate) fn is_done(&self, user: StreamId, era: u64) -> bool {
        self.waits.are_done(user, era)
    }

    /// Returns the eras up to which `stream` is ordered after others.
    pub(crate) fn reach(&self, stream: &S) -> StreamOrder {
        self.waits.reach(stream.id())
    }

    /// Returns the parts that overlap `range`, in order, each with its lateness for the stream of `reach`.
    /// The lateness is the largest value of `point` over the streams that it must wait for, with their eras;
    /// `None` if it need not wait.
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

    /// Returns the parts that overlap `range`, and whether `is_such` holds for a user and the part's era.
    pub(crate) fn parts_with(
        &self,
        range: &Range<u64>,
        is_such: impl Fn(StreamId, u64) -> bool,
    ) -> impl Iterator<Item = (Range<u64>, bool)> {
        self.parts
            .overlapping(range)
            .map(move |part| (part.start..part.end, part.has(|user| is_such(user, part.era))))
    }

    /// Whether no other stream used any part of `range` last.
    #[inline]
    pub(crate) fn is_nobody_elses(&self, range: &Range<u64>, stream: &S) -> bool {
        let [first, second] = &self.known;
        first.holds(range, stream)
            || second.holds(range, stream)
            || self.parts_with(range, |user, _| user != stream.id()).all(|(_, is_anothers)| !is_anothers)
    }

    /// Records that `range` is free and that `streams` used it last. Returns handles of other streams that
    /// parts had and that may be the last ones, to be dropped without the lock. The list is not a complete
    /// list of earlier users.
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
            // None of the new streams' handles is the last.
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

    /// As [`put`](Self::put) for one stream, without releasing a lock: returned handles are kept until they
    /// are [taken](Self::take_gone). Returns `false` and does nothing if too many are kept.
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

    /// Moves the whole part around `range` to this era, if it is the stream's alone and not much larger. The
    /// rest of it may then cause longer waits, which is safe, and the part is not divided.
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

    /// As [`put`](Self::put) for a free in an earlier era, without releasing a lock: returned handles are
    /// kept until they are [taken](Self::take_gone).
    pub(crate) fn put_late(&mut self, range: Range<u64>, streams: Streams<S>, era: u64) {
        let gone = self.put_of(range, streams, era);
        self.keep_gone(gone);
    }

    /// Keeps one handle of each stream until it is [taken](Self::take_gone), so that no other is the last.
    pub(crate) fn keep_gone(&mut self, streams: Streams<S>) {
        streams.iter().for_each(|stream| add(&mut self.gone, stream));
    }

    /// Returns the other streams that used any part of `range` and that `stream` must wait for, if any.
    /// Nothing is removed: the next free of the range records its users anew, and a failed request changes
    /// nothing.
    #[inline]
    pub(crate) fn awaited_for(&mut self, range: &Range<u64>, stream: &S) -> Option<Awaited<S>> {
        if self.is_settled(range, stream) { None } else { self.others_of(range, stream) }
    }

    /// Whether `stream` can get `range` without a wait. Records are unchanged.
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

    /// Takes the handles to be dropped without the lock.
    #[inline]
    pub(crate) fn take_gone(&mut self) -> Streams<S> {
        if self.gone.is_empty() { Streams::new() } else { mem::take(&mut self.gone) }
    }

    /// Caches the part at the start of `range`, if the stream's. Returns its era if it contains the range.
    #[cold]
    fn becomes_known_as(&mut self, range: &Range<u64>, stream: &S) -> Option<u64> {
        let part = self.parts.at(range.start).filter(|part| part.is_of(stream.id()))?;
        let (era, known) =
            (part.era, Known { start: part.start, end: part.end, stream: stream.id().get(), era: part.era });
        let holds = known.holds(range, stream);
        self.know(known);
        holds.then_some(era)
    }

    /// Replaces the older cached part.
    fn know(&mut self, known: Known) {
        self.known.swap(0, 1);
        self.known[0] = known;
    }

    /// Returns all streams whose use of a free part of `range` is not known to be complete. For live parts the
    /// result may be incomplete or outdated.
    pub(crate) fn users_in(&self, range: &Range<u64>) -> Streams<S> {
        let mut used = Streams::new();
        for Part { streams, era, .. } in self.parts.overlapping(range) {
            let open = streams.iter().filter(|user| !self.is_done(user.id(), *era));
            open.for_each(|stream| add(&mut used, stream));
        }
        used
    }

    /// Forgets `range`. Returns all streams whose use of any part of it is not known to be complete.
    pub(crate) fn take(&mut self, range: Range<u64>) -> Streams<S> {
        let (mut used, mut gone) = (Streams::new(), mem::take(&mut self.gone));
        self.take_each(range, |waits, Part { streams, era, .. }| {
            for user in streams {
                // None of the dropped handles is the last: the list has another.
                add(if waits.are_done(user.id(), era) { &mut gone } else { &mut used }, &user);
            }
        });
        self.gone = gone;
        used
    }

    /// Forgets `range`, and passes each part to `tell`.
    fn take_each(&mut self, range: Range<u64>, mut tell: impl FnMut(&Waits, Part<S>)) {
        if range.is_empty() {
            return;
        }
        self.known = Default::default();
        let Self { parts, waits, .. } = self;
        parts.cut(&range, |part| tell(waits, part));
    }
}
