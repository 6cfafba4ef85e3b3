//! Events on streams, recorded when memory that several streams used is freed. The next user of the
//! memory waits for that event, not for later work on those streams.

use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use vrampool_backend::{Backend, StreamId};

/// How many are kept of a stream, and of how many streams. One of which none is kept is waited for as it is
/// at that moment.
pub(in crate::arena) const OF_A_STREAM: usize = 64;
const STREAMS: usize = 16;

/// So many requests that found nothing without a wait pass at most between two looks at how far streams are.
const LONGEST_PAUSE: u32 = 7;

/// A stream that only wrote what is shared gets a point in one of so many eras, unless it has none.
const LATELY: u64 = 4;

/// Points of several streams, mostly one of each; to be dropped without the lock.
pub(in crate::arena) type Passed<B> = SmallVec<[StreamPoint<B>; 4]>;

/// An event behind all that a stream did until an era was over.
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

/// Streams that are to be waited for, each with the point that is far enough, if there is one.
#[derive(Debug)]
pub(in crate::arena) struct Before<B: Backend> {
    pub(in crate::arena) streams: SmallVec<[AwaitedStream<B>; 1]>,
    /// The era that was over when they were asked, for those without.
    pub(in crate::arena) era: u64,
}

/// Those of one stream, by era.
#[derive(Debug)]
struct Track<B: Backend> {
    stream: StreamId,
    points: VecDeque<StreamPoint<B>>,
    /// Whether the stream may be done with all of them, for all that is known: it is asked for the latest one
    /// first.
    may_be_done: bool,
}

/// The latest ones of each stream.
#[derive(Debug)]
pub(in crate::arena) struct Timeline<B: Backend> {
    /// None is empty.
    tracks: Vec<Track<B>>,
    /// Whether there ever was one.
    were_any: bool,
    /// How many requests are left until the next look, and how many will be behind that.
    pause: u32,
    next_pause: u32,
}

impl<B: Backend> Timeline<B> {
    pub(in crate::arena) fn new() -> Self {
        Self { tracks: Vec::new(), were_any: false, pause: 0, next_pause: 0 }
    }

    /// Answers those that are to be dropped without the lock.
    pub(in crate::arena) fn add(&mut self, point: StreamPoint<B>) -> VecDeque<StreamPoint<B>> {
        self.were_any = true;
        let mut gone = VecDeque::new();
        if let Some(track) = self.tracks.iter_mut().find(|track| track.stream == point.stream) {
            if track.points.len() == OF_A_STREAM {
                gone.extend(track.points.pop_front());
            }
            // Mostly it is the latest.
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

    /// Whether one of that stream is there that is not much older than that era.
    pub(in crate::arena) fn has_lately(&self, stream: StreamId, era: u64) -> bool {
        let latest =
            self.tracks.iter().find(|track| track.stream == stream).and_then(|track| track.points.back());
        latest.is_some_and(|point| era < point.era.saturating_add(LATELY))
    }

    /// Whether it is time to look how far streams are: at once while they get on, less and less often while
    /// they do not.
    #[inline]
    pub(in crate::arena) fn is_due(&self) -> bool {
        !self.is_empty() && self.pause == 0
    }

    /// A request did not look.
    #[inline]
    pub(in crate::arena) fn pass(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    /// For a look: of each stream the latest, or, once that was asked for and not reached, the earliest,
    /// until all it has were reached.
    pub(in crate::arena) fn asked(&mut self) -> Passed<B> {
        self.next_pause = (2 * self.next_pause + 1).min(LONGEST_PAUSE);
        self.pause = self.next_pause;
        let asked = |track: &Track<B>| {
            if track.may_be_done { track.points.back().cloned() } else { track.points.front().cloned() }
        };
        self.tracks.iter().filter_map(asked).collect()
    }

    /// That stream did not come to the point of that era. Answers the earliest one, if it was asked for the
    /// latest.
    pub(in crate::arena) fn instead(&mut self, stream: StreamId, era: u64) -> Option<StreamPoint<B>> {
        let track = self.tracks.iter_mut().find(|track| track.stream == stream && track.may_be_done)?;
        track.may_be_done = false;
        track.points.front().filter(|first| first.era < era).cloned()
    }

    /// Takes those out that its stream passed before that one, and that one: to be dropped without the lock.
    /// Answers the next one of that stream to be asked for, from the middle of those that are left: few are
    /// asked for where most are reached.
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

    /// The earliest point of a stream that is behind what it freed in that era.
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
        /// The twin is a list.
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

    /// Streams that get on are looked at for every request, others less and less often, and never not at all.
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
        // What a request does.
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

    /// One that was begun before a resize is put among those of the next range.
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
