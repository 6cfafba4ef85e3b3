//! Streams that may still use free parts of a range: the next user of a part must wait for them.

mod parts;
#[cfg(test)]
mod tests;

use crate::streams::{AwaitedUsers, FreedIn, Streams, Ticks, Uses, add, await_also};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::cell::Cell;
use std::mem;
use std::ops::Range;
use vrampool_backend::{Stream, StreamId};

/// Handles of streams that are kept besides those of twice the streams that have parts.
const MOST_STREAMS: usize = 8;

/// Most streams to be asked at a request.
const MOST_UNASKED: usize = 16;

/// A part is renewed as a whole if it has at most so many times the bytes that are freed in it.
const WHOLE: u64 = 16;

/// As [`WHOLE`], for a part whose user is complete: the rest of it would need no wait.
const WHOLE_DONE: u64 = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The users, the last writer first.
    users: SmallVec<[StreamId; 2]>,
    /// The tick of the free.
    tick: u64,
}

impl Part {
    /// Whether the stream is the only user.
    #[inline]
    fn is_of(&self, stream: StreamId) -> bool {
        self.users[..] == [stream]
    }

    /// The stream for which the bytes of a free with a marker are counted: a reader, or else the writer.
    fn counted_user(&self) -> StreamId {
        *self.users.get(1).unwrap_or(&self.users[0])
    }

    /// Whether `is_such` holds for one of the streams, with the tick.
    #[inline]
    pub(crate) fn has(&self, mut is_such: impl FnMut(StreamId, u64) -> bool) -> bool {
        self.users.iter().any(|&user| is_such(user, self.tick))
    }

    /// Whether both have the same users and tick.
    fn is_alike(&self, other: &Self) -> bool {
        self.tick == other.tick && self.users == other.users
    }

    /// Removes everything from `offset` on, which is in the part, and returns it.
    fn split_off(&mut self, offset: u64) -> Self {
        let back = Self { start: offset, ..self.clone() };
        self.end = offset;
        back
    }
}

#[derive(Debug)]
struct Parts {
    /// None is empty.
    chunks: Vec<Vec<Part>>,
    /// The [place](Self::place) that was found last: a request, and a free, look for one several times.
    last: Cell<(usize, usize)>,
}

/// Disjoint parts of a range with the streams that used them last.
///
/// A free costs an entry here and no event. Adjacent parts of the same streams are one entry.
///
/// Entries may remain under a live block, if its stream was the only user of the bytes or is ordered after
/// all users. The entries of live bytes are irrelevant, because the next free replaces them. A program with
/// one stream therefore has one entry, from the start to the highest byte ever used. That entry is cached in
/// `recent`, so nothing is looked up. Two entries are cached, because a growing arena has two parts.
///
/// A stream that waits for another is ordered after the other's work up to some point, and need not wait
/// again for what the other freed before. Such a point begins a tick. A part stores the tick of its last free.
/// `ticks` stores up to which tick each stream is ordered after another, and up to which tick a stream is
/// complete.
#[derive(Debug)]
pub(crate) struct UseMap<S> {
    parts: Parts,
    recent: [RecentPart; 2],
    pub(crate) ticks: Ticks,
    /// A handle of each stream that parts have, and of others since the last [prune](Self::prune).
    streams: Streams<S>,
    /// The number of them after that.
    kept: usize,
    /// Handles to be dropped without the lock.
    dropped: Streams<S>,
    /// Streams that freed memory while no markers were wanted, and that were not asked since whether they are idle.
    unasked: Streams<S>,
}

/// A cached part that only one stream used; empty if unset.
#[derive(Debug, Default)]
struct RecentPart {
    start: u64,
    end: u64,
    stream: u64,
    tick: u64,
}

impl RecentPart {
    /// Whether the part is the stream's and contains the range.
    #[inline]
    fn holds(&self, range: &Range<u64>, stream: &impl Stream) -> bool {
        self.stream == stream.id().get() && self.start <= range.start && range.end <= self.end
    }
}

impl<S: Stream> UseMap<S> {
    pub(crate) fn new() -> Self {
        Self {
            parts: Parts::new(),
            recent: Default::default(),
            ticks: Ticks::from_one(),
            streams: Streams::new(),
            kept: 0,
            dropped: Streams::new(),
            unasked: Streams::new(),
        }
    }

    /// Creates the state for another range. Its ticks are all later, so pending results do not apply to it.
    pub(crate) fn after(before: &mut Self) -> Self {
        let mut new = Self::new();
        new.ticks = before.ticks.after();
        new
    }

    /// Returns the tick of the cached part that contains `range` and that only the stream used.
    #[inline]
    fn recent_tick(&self, range: &Range<u64>, stream: &S) -> Option<u64> {
        self.recent.iter().find(|recent| recent.holds(range, stream)).map(|recent| recent.tick)
    }

    /// Returns the tick of the part that contains `range`, if only the stream used it.
    #[inline]
    fn own_tick(&mut self, range: &Range<u64>, stream: &S) -> Option<u64> {
        let recent = self.recent_tick(range, stream);
        if recent.is_some() { recent } else { self.becomes_known_as(range, stream) }
    }

    /// Whether `range` is recorded as freed by only this stream in this tick: its free then records nothing.
    #[inline]
    pub(crate) fn is_of(&mut self, range: &Range<u64>, stream: &S) -> bool {
        self.own_tick(range, stream) == Some(self.ticks.now())
    }

    /// Returns the parts that overlap `range`, in order.
    pub(crate) fn parts<'a>(&'a self, range: &Range<u64>) -> impl Iterator<Item = &'a Part> + use<'a, S> {
        self.parts.overlapping(range)
    }

    /// Returns the parts of `range` that a stream may still use, in order.
    pub(crate) fn pending(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let open = |part: &&Part| part.has(|user, tick| !self.ticks.are_done(user, tick));
        let parts = self.parts.overlapping(&range).filter(open);
        parts.map(move |part| part.start.max(range.start)..part.end.min(range.end))
    }

    /// Whether another stream than `stream` wrote a part last, or may still read it.
    pub(crate) fn is_anothers(&self, part: &Part, stream: StreamId) -> bool {
        let is_open = |user, tick| user != stream && !self.ticks.are_done(user, tick);
        part.users[0] != stream || part.has(is_open)
    }

    /// Records a free without a marker, for the next marker of the stream or the next request of another stream.
    pub(crate) fn freed_unmarked(&mut self, user: &S, bytes: u64) {
        if self.ticks.are_markers_wanted() {
            self.ticks.freed_unmarked(user.id(), FreedIn::Arena, bytes);
        } else if self.unasked.len() < MOST_UNASKED {
            add(&mut self.unasked, user);
        }
    }

    #[inline]
    pub(crate) fn are_any_unasked(&self) -> bool {
        !self.unasked.is_empty()
    }

    /// Whether a stream other than `stream` must be [asked](Self::take_unasked).
    #[inline]
    pub(crate) fn are_others_unasked(&self, stream: StreamId) -> bool {
        self.unasked.iter().any(|user| user.id() != stream)
    }

    /// Takes the streams that are to be asked whether they are idle before a request of `stream`.
    pub(crate) fn take_unasked(&mut self, stream: StreamId) -> Streams<S> {
        let (own, others) = mem::take(&mut self.unasked).into_iter().partition(|user| user.id() == stream);
        self.unasked = own;
        others
    }

    /// Counts bytes in flight of `range` as live again.
    #[inline]
    pub(crate) fn note_reused(&mut self, range: &Range<u64>) {
        if self.ticks.are_any_freed() {
            self.note_each_reused(range);
        }
    }

    #[cold]
    fn note_each_reused(&mut self, range: &Range<u64>) {
        let Self { parts, ticks, .. } = self;
        for part in parts.overlapping(range) {
            ticks.reused(
                part.counted_user(),
                FreedIn::Arena,
                part.tick,
                part.end.min(range.end) - part.start.max(range.start),
            );
        }
    }

    /// Whether no other stream wrote any part of `range` last, or may still read it.
    #[inline]
    pub(crate) fn has_no_other_user(&self, range: &Range<u64>, stream: &S) -> bool {
        self.recent_tick(range, stream).is_some()
            || self.parts.overlapping(range).all(|part| !self.is_anothers(part, stream.id()))
    }

    /// Records that `range` is free, and its users.
    pub(crate) fn put(&mut self, range: Range<u64>, uses: &Uses<S>) {
        if range.is_empty() {
            return;
        }
        uses.each(|user| add(&mut self.streams, user));
        let (tick, mut users) = (self.ticks.now(), uses.ids());
        // The writer is the last.
        users.rotate_right(1);
        self.put_part(Part { start: range.start, end: range.end, users, tick });
        self.prune_if_many();
    }

    /// As [`put`](Self::put), for a part whose streams have handles.
    fn put_part(&mut self, part: Part) {
        let (only, tick) = ((part.users.len() == 1).then_some(part.users[0]), part.tick);
        let Range { start, end } = self.parts.put(part);
        for recent in &mut self.recent {
            if recent.start < end && start < recent.end {
                *recent = RecentPart::default();
            }
        }
        if let Some(stream) = only {
            self.note_recent(RecentPart { start, end, stream: stream.get(), tick });
        }
    }

    #[inline]
    fn prune_if_many(&mut self) {
        if self.streams.len() > 2 * self.kept + MOST_STREAMS {
            self.prune();
        }
    }

    /// Takes out the handles of streams that no part has.
    #[cold]
    fn prune(&mut self) {
        let Self { parts, streams, dropped, .. } = self;
        let used: FxHashSet<StreamId> = parts.iter().flat_map(|part| part.users.iter().copied()).collect();
        let (kept, unused) = mem::take(streams).into_iter().partition(|stream| used.contains(&stream.id()));
        *streams = kept;
        dropped.extend::<Streams<S>>(unused);
        self.kept = self.streams.len();
    }

    /// The handles of users of `range` for which `is_such` holds, each with the tick.
    fn users_of(&self, range: &Range<u64>, is_such: impl Fn(&S, u64) -> bool) -> AwaitedUsers<S> {
        let mut users = AwaitedUsers::new();
        for Part { users: ids, tick, .. } in self.parts.overlapping(range) {
            let of_part = self.streams.iter().filter(|stream| ids.contains(&stream.id()));
            of_part.filter(|user| is_such(user, *tick)).for_each(|user| await_also(&mut users, user, *tick));
        }
        users
    }

    /// Adds `stream` to the users of a free `range`, and those that it must wait for to `before`.
    pub(crate) fn add_user(&mut self, range: Range<u64>, stream: &S, before: &mut AwaitedUsers<S>) {
        let others = self.others_of(&range, stream);
        others.iter().flatten().for_each(|(user, tick)| await_also(before, user, *tick));
        self.note_reused(&range);
        let is_open = |user, tick| !self.ticks.cover(user, stream.id(), tick);
        let open: Vec<_> = self.parts.overlapping(&range).filter(|part| part.has(is_open)).cloned().collect();
        add(&mut self.streams, stream);
        let (Range { start, end }, id, tick) = (range, stream.id(), self.ticks.now());
        self.put_part(Part { start, end, users: [id].into_iter().collect(), tick });
        for mut part in open {
            (part.start, part.end, part.tick) = (part.start.max(start), part.end.min(end), tick);
            if !part.users.contains(&id) {
                // Its bytes are counted for this stream.
                part.users.insert(1, id);
            }
            self.put_part(part);
        }
        // Not before all parts name their streams again.
        self.prune_if_many();
    }

    /// As [`put`](Self::put) for one stream.
    #[inline]
    pub(crate) fn put_own(&mut self, range: Range<u64>, stream: &S) {
        if self.recent_tick(&range, stream) != Some(self.ticks.now()) && !self.renew(&range, stream) {
            self.put(range, &Uses::new(stream.clone()));
        }
    }

    /// Moves the whole part around `range` to this tick, if it is the stream's alone and not much larger. The
    /// rest of it may then cause longer waits, which is safe, and the part is not divided.
    fn renew(&mut self, range: &Range<u64>, stream: &S) -> bool {
        let (id, tick, bytes, ticks) = (stream.id(), self.ticks.now(), range.end - range.start, &self.ticks);
        let is_whole = |part: &Part| {
            let is_within = |most: u64| part.end - part.start <= most.saturating_mul(bytes);
            part.tick == tick || is_within(WHOLE_DONE) || is_within(WHOLE) && !ticks.are_done(id, part.tick)
        };
        let part = self.parts.at_mut(range.start).filter(|part| part.is_of(id) && range.end <= part.end);
        let Some(part) = part.filter(|part| is_whole(part)) else { return false };
        part.tick = tick;
        let recent = RecentPart { start: part.start, end: part.end, stream: id.get(), tick };
        self.note_recent(recent);
        true
    }

    /// Returns the other streams that used any part of `range` and that `stream` must wait for, if any.
    /// Nothing is removed: the next free of the range records its users anew, and a failed request changes
    /// nothing.
    #[inline]
    pub(crate) fn awaited_for(&mut self, range: &Range<u64>, stream: &S) -> Option<AwaitedUsers<S>> {
        if self.own_tick(range, stream).is_some() { None } else { self.others_of(range, stream) }
    }

    /// Whether `stream` can get `range` without a wait. Records are unchanged.
    #[inline]
    pub(crate) fn needs_no_wait(&mut self, range: &Range<u64>, stream: &S) -> bool {
        self.own_tick(range, stream).is_some() || self.has_no_others(range, stream)
    }

    #[cold]
    fn has_no_others(&self, range: &Range<u64>, stream: &S) -> bool {
        let is_open = |user, tick| user != stream.id() && !self.ticks.cover(user, stream.id(), tick);
        self.parts.overlapping(range).all(|part| !part.has(is_open))
    }

    #[cold]
    fn others_of(&self, range: &Range<u64>, stream: &S) -> Option<AwaitedUsers<S>> {
        let others = self.users_of(range, |user, tick| !self.ticks.cover(user.id(), stream.id(), tick));
        (!others.is_empty()).then_some(others)
    }

    /// Whether so many handles are to be dropped that a free has to [take](Self::take_dropped) them.
    #[inline]
    pub(crate) fn keeps_many_dropped(&self) -> bool {
        self.dropped.len() >= MOST_STREAMS
    }

    /// The number of handles that it has.
    #[cfg(all(test, feature = "host", not(model)))]
    pub(crate) fn handles(&self) -> usize {
        self.streams.len() + self.dropped.len()
    }

    /// Takes the handles to be dropped without the lock.
    #[inline]
    pub(crate) fn take_dropped(&mut self) -> Streams<S> {
        if self.dropped.is_empty() { Streams::new() } else { mem::take(&mut self.dropped) }
    }

    /// Caches the part at the start of `range`, if the stream's. Returns its tick if it contains the range.
    #[cold]
    fn becomes_known_as(&mut self, range: &Range<u64>, stream: &S) -> Option<u64> {
        let part = self.parts.at(range.start).filter(|part| part.is_of(stream.id()))?;
        let recent =
            RecentPart { start: part.start, end: part.end, stream: stream.id().get(), tick: part.tick };
        let holds = recent.holds(range, stream);
        let tick = recent.tick;
        self.note_recent(recent);
        holds.then_some(tick)
    }

    /// Replaces the older cached part.
    fn note_recent(&mut self, part: RecentPart) {
        self.recent.swap(0, 1);
        self.recent[0] = part;
    }

    /// Returns the streams whose use of free parts of `ranges` is not known to be complete, and for which `is_such`
    /// holds with the part's tick. For live parts the result may be incomplete or outdated.
    pub(crate) fn users_in(
        &self,
        ranges: impl IntoIterator<Item = Range<u64>>,
        is_such: impl Fn(&S, u64) -> bool,
    ) -> Streams<S> {
        let is_open = |user: &S, tick| !self.ticks.are_done(user.id(), tick) && is_such(user, tick);
        let mut users = Streams::new();
        for range in ranges {
            self.users_of(&range, is_open).iter().for_each(|(user, _)| add(&mut users, user));
        }
        users
    }

    /// Forgets `range`. Returns all streams whose use of any part of it is not known to be complete.
    pub(crate) fn take(&mut self, range: Range<u64>) -> Streams<S> {
        let used = self.users_in([range.clone()], |_, _| true);
        self.recent = Default::default();
        self.parts.cut(&range);
        used
    }
}
