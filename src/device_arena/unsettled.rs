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
/// of the same streams are one entry, so a program with one stream has as good as none.
#[derive(Debug)]
pub(crate) struct Unsettled<S> {
    /// By start.
    parts: BTreeMap<u64, Part<S>>,
}

#[derive(Debug)]
struct Part<S> {
    end: u64,
    streams: Streams<S>,
}

impl<S: Stream> Unsettled<S> {
    pub(crate) fn new() -> Self {
        Self { parts: BTreeMap::new() }
    }

    /// From now on `range` is free and `streams` used it last.
    pub(crate) fn put(&mut self, range: Range<u64>, streams: Streams<S>) {
        self.take(range.clone());
        if range.is_empty() || streams.is_empty() {
            return;
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
        self.parts.insert(start, Part { end, streams });
    }

    /// `range` is handed out: forgets it, and answers all streams that used any part of it.
    pub(crate) fn take(&mut self, range: Range<u64>) -> Streams<S> {
        let mut used = Streams::new();
        if range.is_empty() {
            return used;
        }
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
        /// The twin keeps a set of streams for each byte.
        #[test]
        fn it_is_a_set_of_streams_for_each_byte(
            steps in prop::collection::vec((any::<bool>(), 0..END, 0..END, prop::collection::btree_set(0..4usize, 0..3)), 0..60),
        ) {
            let names: Vec<Named> = (0..4).map(|_| Named(StreamId::next())).collect();
            let mut unsettled = Unsettled::new();
            let mut twin = vec![BTreeSet::new(); END as usize];
            for (puts, one, two, streams) in steps {
                let range = one.min(two)..one.max(two);
                let bytes = range.start as usize..range.end as usize;
                if puts {
                    unsettled.put(range, streams.iter().map(|&n| names[n].clone()).collect());
                    twin[bytes].fill(streams);
                } else {
                    let taken: BTreeSet<StreamId> = unsettled.take(range).iter().map(Named::id).collect();
                    let expected = twin[bytes.clone()].iter().flatten().map(|&n| names[n].id()).collect();
                    prop_assert_eq!(taken, expected);
                    twin[bytes].fill(BTreeSet::new());
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
                unsettled.put(block * 4..block * 4 + 4, [stream.clone()].into_iter().collect());
            }
            prop_assert_eq!(unsettled.parts.len(), 1);
        }
    }
}
