//! Which streams may still use free parts of a range: what whoever gets them next must wait for.

use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ops::Range;
use vrampool_backend::{Stream, StreamId};

/// Streams, each once; hardly ever more than one.
pub(crate) type Streams<S> = SmallVec<[S; 1]>;

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
/// A stream that waits for another is behind all that the other did so far. So it need not wait again for what the other freed
/// before that: each wait begins an era, parts have the era of their last free, and who waited for whom in which is known.
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

/// Which streams are behind which, of the latest pairs.
#[derive(Debug, Default)]
struct Waits(VecDeque<Wait>);

/// `stream` is behind all that `user` did until that era was over.
#[derive(Debug)]
struct Wait {
    user: StreamId,
    stream: StreamId,
    era: u64,
}

/// How many pairs of streams are kept. One that is not is taken to be unordered.
const WAITS: usize = 64;

impl Waits {
    /// Whether `stream` is behind all that `user` did up to that era.
    fn cover(&self, user: StreamId, stream: StreamId, era: u64) -> bool {
        self.0.iter().any(|wait| wait.user == user && wait.stream == stream && wait.era >= era)
    }

    fn add(&mut self, wait: Wait) {
        match self.0.iter_mut().find(|known| known.user == wait.user && known.stream == wait.stream) {
            Some(known) => known.era = known.era.max(wait.era),
            None => {
                self.0.truncate(WAITS - 1);
                self.0.push_front(wait);
            }
        }
    }
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

    /// Somebody waits from now on. To be called before the wait is asked for; answers the era that is over, for
    /// [`waited`](Self::waited).
    pub(crate) fn begin_era(&mut self) -> u64 {
        self.era += 1;
        self.era - 1
    }

    /// `stream` is behind all that `user` did until that era was over.
    pub(crate) fn waited(&mut self, user: &S, stream: &S, era: u64) {
        self.waits.add(Wait { user: user.id(), stream: stream.id(), era });
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
    pub(crate) fn take_for(&mut self, range: Range<u64>, stream: &S) -> Option<Streams<S>> {
        if self.is_settled(&range, stream) { None } else { self.take_others(range, stream) }
    }

    #[cold]
    fn take_others(&mut self, range: Range<u64>, stream: &S) -> Option<Streams<S>> {
        let (mut others, mut gone) = (Streams::new(), mem::take(&mut self.gone));
        self.take_each(range, |waits, Part { streams, era, .. }| {
            for user in streams.iter().filter(|user| user.id() != stream.id()) {
                let is_behind = waits.cover(user.id(), stream.id(), *era);
                add(if is_behind { &mut gone } else { &mut others }, user);
            }
        });
        self.gone = gone;
        (!others.is_empty()).then_some(others)
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
        let first = self.parts.range(..range.start).next_back().filter(|(_, part)| part.end > range.start);
        for (_, part) in first.into_iter().chain(self.parts.range(range.clone())) {
            part.streams.iter().for_each(|stream| add(&mut used, stream));
        }
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;
    use vrampool_backend::{DeviceId, StreamId};

    #[derive(Debug, Clone)]
    struct Named(StreamId);

    impl Stream for Named {
        fn id(&self) -> StreamId {
            self.0
        }

        fn device(&self) -> DeviceId {
            DeviceId { backend: "test", key: 0 }
        }
    }

    const END: u64 = 64;

    /// What a byte's users are, and in which era each freed it; nothing of a live one, which nobody asks for.
    type Byte = Option<BTreeMap<usize, u64>>;

    proptest! {
        /// The twin keeps the users of each byte, and who waited for whom.
        #[test]
        fn it_is_a_set_of_streams_for_each_byte(
            steps in prop::collection::vec((0..5, 0..END, 0..END, prop::collection::btree_set(0..4usize, 0..3)), 0..60),
        ) {
            let names: Vec<Named> = (0..4).map(|_| Named(StreamId::next())).collect();
            let mut unsettled = Unsettled::new();
            let mut twin: Vec<Byte> = vec![Some(BTreeMap::new()); END as usize];
            let (mut waits, mut now) = (BTreeMap::new(), 0);
            for (step, one, two, streams) in steps {
                let range = one.min(two)..one.max(two);
                let bytes = range.start as usize..range.end as usize;
                let ids = |taken: Streams<Named>| taken.iter().map(Named::id).collect::<BTreeSet<StreamId>>();
                let users = |twin: &[Byte]| {
                    let bytes: Option<Vec<_>> = twin.iter().map(Option::as_ref).collect();
                    bytes.map(|bytes| bytes.into_iter().flatten().map(|(&user, &era)| (user, era)).collect::<BTreeSet<_>>())
                };
                let freed: Byte = Some(streams.iter().map(|&user| (user, now)).collect());
                match (step, users(&twin[bytes.clone()]), streams.first()) {
                    (0, _, Some(&one)) if streams.len() == 1 => {
                        let is_of = unsettled.is_of(&range, &names[one]);
                        let is_down = twin[bytes.clone()].iter().all(|byte| byte.is_none() || *byte == freed);
                        prop_assert!(!is_of || is_down, "of this stream, and of this era");
                        let is_known = twin[bytes.clone()].iter().all(|byte| *byte == freed);
                        prop_assert!(is_of || !is_known || range.is_empty(), "found where it is");
                        if !is_of {
                            let _ = unsettled.put(range, [names[one].clone()].into_iter().collect());
                        }
                        twin[bytes].fill(freed);
                    }
                    (0 | 1, ..) => {
                        let _ = unsettled.put(range, streams.iter().map(|&n| names[n].clone()).collect());
                        twin[bytes].fill(freed);
                    }
                    (2, Some(users), _) => {
                        let expected: BTreeSet<_> = users.iter().map(|&(user, _)| names[user].id()).collect();
                        prop_assert_eq!(ids(unsettled.users_in(&range)), expected.clone());
                        prop_assert_eq!(ids(unsettled.take(range)), expected);
                        twin[bytes].fill(Some(BTreeMap::new()));
                    }
                    (3, Some(users), Some(&to)) => {
                        let is_open = |&&(user, era): &&(usize, u64)| {
                            user != to && waits.get(&(user, to)).is_none_or(|&waited| waited < era)
                        };
                        let expected: BTreeSet<_> =
                            users.iter().filter(is_open).map(|&(user, _)| names[user].id()).collect();
                        prop_assert_eq!(ids(unsettled.take_for(range, &names[to]).unwrap_or_default()), expected);
                        twin[bytes].fill(None);
                    }
                    (4, ..) if streams.len() == 2 => {
                        let (from, to) = (*streams.first().unwrap(), *streams.last().unwrap());
                        let (from, to) = if one < two { (from, to) } else { (to, from) };
                        let era = unsettled.begin_era();
                        unsettled.waited(&names[from], &names[to], era);
                        waits.insert((from, to), now);
                        now += 1;
                    }
                    _ => {}
                }
                let parts: Vec<_> = unsettled.parts.iter().map(|(&start, part)| (start, part.end)).collect();
                prop_assert!(parts.iter().all(|&(start, end)| start < end && end <= END));
                prop_assert!(parts.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            }
        }

        /// Nothing has to be put where the stream freed it before, but where a wait was between.
        #[test]
        fn what_is_freed_in_another_era_is_put_anew(era in 0..3u64) {
            let stream = Named(StreamId::next());
            let mut unsettled = Unsettled::new();
            let _ = unsettled.put(0..END, [stream.clone()].into_iter().collect());
            prop_assert!(unsettled.is_of(&(8..16), &stream));
            (0..era).for_each(|_| _ = unsettled.begin_era());
            prop_assert_eq!(unsettled.is_of(&(8..16), &stream), era == 0);
            prop_assert!(unsettled.take_for(8..16, &stream).is_none());
        }

        #[test]
        fn neighbours_of_one_stream_are_one_part(order in Just((0..16u64).collect::<Vec<_>>()).prop_shuffle()) {
            let stream = Named(StreamId::next());
            let mut unsettled = Unsettled::new();
            for block in order {
                let _ = unsettled.put(block * 4..block * 4 + 4, [stream.clone()].into_iter().collect());
            }
            prop_assert_eq!(unsettled.parts.len(), 1);
        }
    }

    /// Under the lock no handle is the last, also of a stream that nobody has to wait for.
    #[test]
    fn the_last_handle_of_a_stream_that_is_waited_for_already_is_answered() {
        #[derive(Debug, Clone)]
        struct Counted(StreamId, Arc<()>);

        impl Stream for Counted {
            fn id(&self) -> StreamId {
                self.0
            }

            fn device(&self) -> DeviceId {
                DeviceId { backend: "test", key: 0 }
            }
        }

        let streams = [(); 2].map(|()| Counted(StreamId::next(), Arc::new(())));
        let [user, stream] = &streams;
        let mut unsettled = Unsettled::new();
        let _ = unsettled.put(0..END, [user.clone()].into_iter().collect());
        let era = unsettled.begin_era();
        unsettled.waited(user, stream, era);
        assert!(unsettled.take_for(0..END, stream).is_none(), "it is behind that");
        assert_eq!(Arc::strong_count(&user.1), 2);
        drop(unsettled.take_gone());
        assert_eq!(Arc::strong_count(&user.1), 1);
    }
}
