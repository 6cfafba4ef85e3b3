//! Which streams may still use free parts of a range: what whoever gets them next must wait for.

use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use vrampool_backend::Stream;

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
#[derive(Debug)]
pub(crate) struct Unsettled<S> {
    /// By start.
    parts: BTreeMap<u64, Part<S>>,
    known: [Known; 2],
}

/// One of the parts that only one stream used; an empty one when none is known.
#[derive(Debug, Default)]
struct Known {
    start: u64,
    end: u64,
    stream: u64,
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
}

impl<S: Stream> Unsettled<S> {
    pub(crate) fn new() -> Self {
        Self { parts: BTreeMap::new(), known: Default::default() }
    }

    /// Whether all of `range` is down as the stream's, so that nothing has to be put there when it was the only user.
    #[inline]
    pub(crate) fn is_of(&mut self, range: &Range<u64>, stream: &S) -> bool {
        let [first, second] = &self.known;
        first.holds(range, stream) || second.holds(range, stream) || self.becomes_known_as(range, stream)
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
            && same(&part.streams, &streams)
        {
            start = before;
        }
        if let Some(part) = self.parts.get(&end)
            && same(&part.streams, &streams)
        {
            let behind = end;
            end = part.end;
            self.parts.remove(&behind);
        }
        if let [stream] = &*streams {
            self.know(Known { start, end, stream: stream.id().get() });
        }
        self.parts.insert(start, Part { end, streams });
        before
    }

    /// `range` is handed out to `stream`: answers all others that used any part of it, if any did.
    #[inline]
    pub(crate) fn take_for(&mut self, range: Range<u64>, stream: &S) -> Option<Streams<S>> {
        if self.is_of(&range, stream) { None } else { self.take_others(range, stream) }
    }

    #[cold]
    fn take_others(&mut self, range: Range<u64>, stream: &S) -> Option<Streams<S>> {
        let mut used = self.take(range);
        used.retain(|user| user.id() != stream.id());
        (!used.is_empty()).then_some(used)
    }

    /// All streams that used any part.
    pub(crate) fn users(&self) -> Streams<S> {
        let mut users = Streams::new();
        self.parts.values().flat_map(|part| &part.streams).for_each(|stream| add(&mut users, stream));
        users
    }

    /// Finds the part with the start of `range`, if it is the stream's.
    #[cold]
    fn becomes_known_as(&mut self, range: &Range<u64>, stream: &S) -> bool {
        if let Some((&start, part)) = self.parts.range(..=range.start).next_back()
            && part.streams.iter().all(|user| user.id() == stream.id())
        {
            let known = Known { start, end: part.end, stream: stream.id().get() };
            let holds = known.holds(range, stream);
            self.know(known);
            return holds;
        }
        false
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
        if range.is_empty() {
            return used;
        }
        self.known = Default::default();
        // The last part that starts before the range may reach into it.
        if let Some((&start, part)) = self.parts.range(..range.start).next_back()
            && part.end > range.start
        {
            let rest = Part { end: part.end, streams: part.streams.clone() };
            if let Some(part) = self.parts.get_mut(&start) {
                part.end = range.start;
            }
            self.parts.insert(range.start, rest);
        }
        while let Some((&start, _)) = self.parts.range(range.clone()).next() {
            let Some(part) = self.parts.remove(&start) else { break };
            for stream in &part.streams {
                add(&mut used, stream);
            }
            if part.end > range.end {
                self.parts.insert(range.end, part);
            }
        }
        used
    }
}

fn same<S: Stream>(left: &Streams<S>, right: &Streams<S>) -> bool {
    left.len() == right.len() && left.iter().all(|one| right.iter().any(|other| one.id() == other.id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
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

    proptest! {
        /// The twin keeps a set of streams for each byte; nothing of a live one, which nobody asks for.
        #[test]
        fn it_is_a_set_of_streams_for_each_byte(
            steps in prop::collection::vec((0..4, 0..END, 0..END, prop::collection::btree_set(0..4usize, 0..3)), 0..60),
        ) {
            let names: Vec<Named> = (0..4).map(|_| Named(StreamId::next())).collect();
            let mut unsettled = Unsettled::new();
            let mut twin = vec![Some(BTreeSet::new()); END as usize];
            for (step, one, two, streams) in steps {
                let range = one.min(two)..one.max(two);
                let bytes = range.start as usize..range.end as usize;
                let ids = |taken: Streams<Named>| taken.iter().map(Named::id).collect::<BTreeSet<StreamId>>();
                let known = |twin: &[Option<BTreeSet<usize>>]| {
                    let sets: Option<Vec<_>> = twin.iter().map(Option::as_ref).collect();
                    sets.map(|sets| sets.into_iter().flatten().map(|&n| names[n].id()).collect::<BTreeSet<_>>())
                };
                match (step, known(&twin[bytes.clone()]), streams.first()) {
                    (0, _, Some(&one)) if streams.len() == 1 => {
                        let is_of = unsettled.is_of(&range, &names[one]);
                        let expected = known(&twin[bytes.clone()]).is_some_and(|_| {
                            twin[bytes.clone()].iter().all(|set| set.as_ref() == Some(&streams))
                        });
                        prop_assert!(is_of || !expected || range.is_empty(), "found where it is");
                        if !is_of {
                            let _ = unsettled.put(range, [names[one].clone()].into_iter().collect());
                        }
                        twin[bytes].fill(Some(streams));
                    }
                    (0 | 1, ..) => {
                        let _ = unsettled.put(range, streams.iter().map(|&n| names[n].clone()).collect());
                        twin[bytes].fill(Some(streams));
                    }
                    (2, Some(expected), _) => {
                        prop_assert_eq!(ids(unsettled.users_in(&range)), expected.clone());
                        prop_assert_eq!(ids(unsettled.take(range)), expected);
                        twin[bytes].fill(Some(BTreeSet::new()));
                    }
                    (3, Some(mut expected), Some(&to)) => {
                        expected.remove(&names[to].id());
                        prop_assert_eq!(ids(unsettled.take_for(range, &names[to]).unwrap_or_default()), expected);
                        twin[bytes].fill(None);
                    }
                    _ => {}
                }
                let parts: Vec<_> = unsettled.parts.iter().map(|(&start, part)| (start, part.end)).collect();
                prop_assert!(parts.iter().all(|&(start, end)| start < end && end <= END));
                prop_assert!(parts.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            }
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
}
