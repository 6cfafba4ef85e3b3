//! Events on streams, recorded when memory that several streams used is freed. The next user of the
//! memory waits for that event, not for later work on those streams.

use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use vrampool_backend::{Backend, StreamId};

/// Points kept for each stream, and streams kept. Others are waited for as of the time of the wait.
pub(in crate::arena) const OF_A_STREAM: usize = 64;
const STREAMS: usize = 16;

/// Most requests between two polls of streams that do not advance.
const LONGEST_PAUSE: u32 = 7;

/// A stream that only wrote a shared block gets a point once in this many eras, unless it has none.
const LATELY: u64 = 4;

/// Points of several streams, mostly one each; to be dropped without the lock.
pub(in crate::arena) type Passed<B> = SmallVec<[StreamPoint<B>; 4]>;

/// An event after all work of a stream up to the end of an era.
#[derive(Debug)]
pub(in crate::arena) struct StreamPoint<B: Backend> {
    pub(in crate::arena) stream: StreamId,
    pub(in crate::arena) era: u64,
    pub(in crate::arena) event: Arc<B::Event>,
}

impl<B: Backend> Clone for StreamPoint<B> {
    fn clone(&self) -> Self {
        Self { stream: self.stream, era: self.era, event: Arc::clone(&self.event) }
    }
}

type AwaitedStream<B> = (<B as Backend>::Stream, Option<StreamPoint<B>>);

/// Streams to wait for, each with the earliest sufficient point, if there is one.
#[derive(Debug)]
pub(in crate::arena) struct Before<B: Backend> {
    pub(in crate::arena) streams: SmallVec<[AwaitedStream<B>; 1]>,
    /// The era that ended with the query, for streams without a point.
    pub(in crate::arena) era: u64,
}

/// The points of one stream, by era.
#[derive(Debug)]
struct Track<B: Backend> {
    stream: StreamId,
    points: VecDeque<StreamPoint<B>>,
    /// Whether all points may be complete: the latest is polled first then.
    may_be_done: bool,
}

/// The latest points of each stream.
#[derive(Debug)]
pub(in crate::arena) struct Timeline<B: Backend> {
    /// None of the tracks is empty.
    tracks: Vec<Track<B>>,
    /// Whether a point was ever added.
    were_any: bool,
    /// Requests left until the next poll, and the following pause.
    pause: u32,
    next_pause: u32,
}

impl<B: Backend> Timeline<B> {
    pub(in crate::arena) fn new() -> Self {
        Self { tracks: Vec::new(), were_any: false, pause: 0, next_pause: 0 }
    }

    /// Adds a point. Returns the points to be dropped without the lock.
    pub(in crate::arena) fn add(&mut self, point: StreamPoint<B>) -> VecDeque<StreamPoint<B>> {
        self.were_any = true;
        let mut gone = VecDeque::new();
        if let Some(track) = self.tracks.iter_mut().find(|track| track.stream == point.stream) {
            if track.points.len() == OF_A_STREAM {
                gone.extend(track.points.pop_front());
            }
            // Mostly the point is the latest.
            let is_behind = |other: &&StreamPoint<B>| other.era >= point.era;
            let behind = track.points.iter().rev().take_while(is_behind).count();
            track.points.insert(track.points.len() - behind, point);
            return gone;
        }
        if self.tracks.len() == STREAMS {
            gone = self.tracks.remove(0).points;
        }
        self.tracks.push(Track { stream: point.stream, points: [point].into(), may_be_done: true });
        gone
    }

    /// Whether streams share memory in this program.
    #[inline]
    pub(in crate::arena) fn were_any(&self) -> bool {
        self.were_any
    }

    #[inline]
    pub(in crate::arena) fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }

    /// Whether `stream` has a point that is not much older than `era`.
    pub(in crate::arena) fn has_lately(&self, stream: StreamId, era: u64) -> bool {
        let latest =
            self.tracks.iter().find(|track| track.stream == stream).and_then(|track| track.points.back());
        latest.is_some_and(|point| era < point.era.saturating_add(LATELY))
    }

    /// Whether a poll is due: for every request while streams advance, less and less often while they do not.
    #[inline]
    pub(in crate::arena) fn is_due(&self) -> bool {
        !self.is_empty() && self.pause == 0
    }

    /// Counts a request without a poll.
    #[inline]
    pub(in crate::arena) fn pass(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    /// Starts a poll. Returns the latest point of each stream, or the earliest if the latest was polled and
    /// is not reached, until all points of the stream are reached.
    pub(in crate::arena) fn asked(&mut self) -> Passed<B> {
        self.next_pause = (2 * self.next_pause + 1).min(LONGEST_PAUSE);
        self.pause = self.next_pause;
        let asked = |track: &Track<B>| {
            if track.may_be_done { track.points.back().cloned() } else { track.points.front().cloned() }
        };
        self.tracks.iter().filter_map(asked).collect()
    }

    /// Records that a stream has not reached `era`. Returns its earliest point if that was the latest one.
    pub(in crate::arena) fn instead(&mut self, stream: StreamId, era: u64) -> Option<StreamPoint<B>> {
        let track = self.tracks.iter_mut().find(|track| track.stream == stream && track.may_be_done)?;
        track.may_be_done = false;
        track.points.front().filter(|first| first.era < era).cloned()
    }

    /// Removes a reached point and the earlier ones of its stream, and appends them to `gone`, to be dropped
    /// without the lock. Returns the stream's next point to poll, the middle of the remaining ones: a
    /// bisection, since most points are reached.
    pub(in crate::arena) fn take_until(
        &mut self,
        passed: &StreamPoint<B>,
        gone: &mut Passed<B>,
    ) -> Option<StreamPoint<B>> {
        (self.pause, self.next_pause) = (0, 0);
        let place = self.tracks.iter().position(|track| track.stream == passed.stream)?;
        let points = &mut self.tracks[place].points;
        gone.extend(points.drain(..points.partition_point(|point| point.era <= passed.era)));
        let next = points.get(points.len() / 2).cloned();
        if points.is_empty() {
            self.tracks.remove(place);
        }
        next
    }

    /// Returns the earliest point of a stream after its frees in `era`.
    pub(in crate::arena) fn behind(&self, stream: StreamId, era: u64) -> Option<&StreamPoint<B>> {
        let track = self.tracks.iter().find(|track| track.stream == stream)?;
        track.points.get(track.points.partition_point(|point| point.era < era))
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::arena::DeviceArena;
    use crate::arena::state::ToRecord;
    use crate::host::HostDevice;
    use proptest::prelude::*;
    use std::sync::mpsc::channel;
    use vrampool_backend::Stream;

    proptest! {
        /// The naive twin is a list. One long function, because each step changes both.
        #[test]
        fn they_are_the_latest_of_each_stream(
            steps in prop::collection::vec((0..4u8, 0..STREAMS + 2, 0..200u64), 0..400),
        ) {
            let device = HostDevice::new();
            let streams: Vec<_> =
                (0..STREAMS + 2).map(|_| device.create_stream().expect("a stream").id()).collect();
            let event = Arc::new(device.record(&device.create_stream().expect("a stream")).expect("no fault"));
            let mut points = Timeline::<HostDevice>::new();
            let mut twin = Vec::<(StreamId, Vec<u64>, bool)>::new();
            for (step, stream, era) in steps {
                let stream = streams[stream];
                let point = || StreamPoint { stream, era, event: Arc::clone(&event) };
                let place = twin.iter().position(|(other, ..)| *other == stream);
                match step {
                    0 => {
                        let before: usize = twin.iter().map(|(_, eras, _)| eras.len()).sum();
                        match place {
                            Some(place) => {
                                let eras = &mut twin[place].1;
                                if eras.len() == OF_A_STREAM {
                                    eras.remove(0);
                                }
                                eras.push(era);
                                eras.sort_unstable();
                            }
                            None => {
                                if twin.len() == STREAMS {
                                    twin.remove(0);
                                }
                                twin.push((stream, vec![era], true));
                            }
                        }
                        let after: usize = twin.iter().map(|(_, eras, _)| eras.len()).sum();
                        prop_assert_eq!(points.add(point()).len(), before + 1 - after);
                    }
                    1 => {
                        let (mut gone, mut next) = (0, None);
                        if let Some(place) = place {
                            let eras = &mut twin[place].1;
                            gone = eras.extract_if(.., |other| *other <= era).count();
                            next = eras.get(eras.len() / 2).copied();
                            if eras.is_empty() {
                                twin.remove(place);
                            }
                        }
                        let mut taken = Passed::new();
                        let asked = points.take_until(&point(), &mut taken);
                        prop_assert_eq!((taken.len(), asked.map(|point| point.era)), (gone, next));
                    }
                    2 => {
                        let track = place.map(|place| &mut twin[place]).filter(|(.., may_be)| *may_be);
                        let expected = track.and_then(|(_, eras, may_be_done)| {
                            *may_be_done = false;
                            eras.first().copied().filter(|first| *first < era)
                        });
                        prop_assert_eq!(points.instead(stream, era).map(|point| point.era), expected);
                    }
                    _ => {
                        let eras = place.map(|place| &twin[place].1);
                        let expected = eras.and_then(|eras| eras.iter().find(|other| **other >= era));
                        prop_assert_eq!(points.behind(stream, era).map(|point| point.era), expected.copied());
                    }
                }
                let asked: Vec<_> = points.asked().iter().map(|point| (point.stream, point.era)).collect();
                let of_lane = |(stream, eras, may_be_done): &(StreamId, Vec<u64>, bool)| {
                    (*stream, if *may_be_done { eras[eras.len() - 1] } else { eras[0] })
                };
                prop_assert_eq!(asked, twin.iter().map(of_lane).collect::<Vec<_>>());
                prop_assert_eq!(points.is_empty(), twin.is_empty());
            }
        }
    }

    /// Streams that advance are polled at every request, others less and less often, but always eventually.
    #[test]
    fn looks_become_rarer_while_nothing_is_reached() {
        let device = HostDevice::new();
        let stream = device.create_stream().expect("a stream");
        let point = StreamPoint {
            stream: stream.id(),
            era: 0,
            event: Arc::new(device.record(&stream).expect("no fault")),
        };
        let mut points = Timeline::<HostDevice>::new();
        assert!(!points.is_due(), "there are none");
        assert!(points.add(point.clone()).is_empty());
        // Mimics a request.
        let looks = |points: &mut Timeline<HostDevice>| {
            let is_due = points.is_due();
            if is_due {
                drop(points.asked())
            } else {
                points.pass()
            }
            is_due
        };
        let looked: Vec<_> = (0..64).filter(|_| looks(&mut points)).collect();
        assert_eq!(looked, [0, 2, 6, 14, 22, 30, 38, 46, 54, 62]);
        assert!(points.take_until(&point, &mut Passed::new()).is_none());
        assert!(points.add(point).is_empty());
        let looked: Vec<_> = (0..10).filter(|_| looks(&mut points)).collect();
        assert_eq!(looked, [0, 2, 6], "one was reached");
    }

    /// A point that was begun before a resize is added to the points of the next range.
    #[test]
    fn a_point_is_behind_nothing_that_was_freed_after_it_was_made() {
        const BYTES: u64 = 1 << 16;
        let device = HostDevice::new();
        let [writer, reader] = [(); 2].map(|()| device.create_stream().expect("a stream"));
        let arena = DeviceArena::builder(&device).limit(BYTES).build().expect("an arena");
        let free = || {
            let block = arena.allocate(BYTES, &writer).expect("memory");
            block.used_on(&reader).expect("no fault");
        };
        (0..9).for_each(|_| free());
        let era = arena.core.state.lock().unsettled.begin_era();
        arena.resize(BYTES).expect("memory");
        arena.core.record_points(&ToRecord { streams: [reader.clone()].into_iter().collect(), era });
        device.synchronize(&reader).expect("no fault");
        let (go, told) = channel::<()>();
        let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| _ = told.recv();
        reader.launch([], [], kernel).expect("queued");
        free();
        let waits = arena.stream_waits();
        let _next = arena.allocate(BYTES, &writer).expect("memory");
        assert_eq!(arena.stream_waits(), waits + 1, "the reader is not done with it");
        go.send(()).expect("it listens");
    }
}
