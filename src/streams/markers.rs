//! Markers: events on streams that are recorded when memory is freed. The next user of the memory waits for the
//! marker, not for later work on those streams.

use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use vrampool_backend::{Backend, StreamId};

/// Points kept for each stream, and streams kept. Others are waited for as of the time of the wait.
pub(crate) const OF_A_STREAM: usize = 64;
const STREAMS: usize = 16;

/// Most requests between two polls of streams that do not advance.
const LONGEST_PAUSE: u32 = 31;

/// Markers of several streams, mostly one each; to be dropped without the lock.
pub(crate) type Passed<B> = SmallVec<[Marker<B>; 4]>;

/// An event after all work of a stream up to the end of a [tick](crate::streams::ticks).
#[derive(Debug)]
pub(crate) struct Marker<B: Backend> {
    pub(crate) stream: StreamId,
    pub(crate) tick: u64,
    pub(crate) event: Arc<B::Event>,
}

impl<B: Backend> Clone for Marker<B> {
    fn clone(&self) -> Self {
        Self { stream: self.stream, tick: self.tick, event: Arc::clone(&self.event) }
    }
}

/// The points of one stream, by tick.
#[derive(Debug)]
struct StreamMarkers<B: Backend> {
    stream: StreamId,
    points: VecDeque<Marker<B>>,
    /// Whether all points may be complete: the latest is polled first then.
    may_be_done: bool,
}

/// The latest points of each stream.
#[derive(Debug)]
pub(crate) struct Markers<B: Backend> {
    /// No entry is empty.
    streams: Vec<StreamMarkers<B>>,
    /// Requests left until the next poll, and the following pause.
    pause: u32,
    next_pause: u32,
}

impl<B: Backend> Markers<B> {
    pub(crate) fn new() -> Self {
        Self { streams: Vec::new(), pause: 0, next_pause: 0 }
    }

    /// Adds a point. Returns the points to be dropped without the lock.
    pub(crate) fn add(&mut self, point: Marker<B>) -> VecDeque<Marker<B>> {
        let mut dropped = VecDeque::new();
        if let Some(entry) = self.streams.iter_mut().find(|entry| entry.stream == point.stream) {
            if entry.points.len() == OF_A_STREAM {
                dropped.extend(entry.points.pop_front());
            }
            // Mostly the point is the latest.
            let is_behind = |other: &&Marker<B>| other.tick >= point.tick;
            let behind = entry.points.iter().rev().take_while(is_behind).count();
            entry.points.insert(entry.points.len() - behind, point);
            return dropped;
        }
        if self.streams.len() == STREAMS {
            dropped = self.streams.remove(0).points;
        }
        self.streams.push(StreamMarkers { stream: point.stream, points: [point].into(), may_be_done: true });
        dropped
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether a poll is due: for every second request while streams advance, less and less often while they do not.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        !self.is_empty() && self.pause == 0
    }

    /// Counts a request without a poll.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    /// Counts a request. Returns whether a poll is due before the next one.
    pub(crate) fn note_request(&mut self) -> bool {
        self.pass();
        self.is_due()
    }

    /// Starts a poll. Returns the latest point of each stream, or the earliest if the latest was polled and
    /// is not reached, until all points of the stream are reached.
    pub(crate) fn asked(&mut self) -> Passed<B> {
        self.next_pause = (2 * self.next_pause + 1).min(LONGEST_PAUSE);
        self.pause = self.next_pause;
        let asked = |entry: &StreamMarkers<B>| {
            if entry.may_be_done { entry.points.back().cloned() } else { entry.points.front().cloned() }
        };
        self.streams.iter().filter_map(asked).collect()
    }

    /// Records that a stream has not reached `tick`. Returns its earliest point if that was the latest one.
    pub(crate) fn fallback(&mut self, stream: StreamId, tick: u64) -> Option<Marker<B>> {
        let entry = self.streams.iter_mut().find(|entry| entry.stream == stream && entry.may_be_done)?;
        entry.may_be_done = false;
        entry.points.front().filter(|first| first.tick < tick).cloned()
    }

    /// Removes a reached point and the earlier ones of its stream, and appends them to `dropped`, to be dropped
    /// without the lock. Returns the stream's next point to poll, the middle of the remaining ones: a
    /// bisection, since most points are reached.
    pub(crate) fn take_until(&mut self, passed: &Marker<B>, dropped: &mut Passed<B>) -> Option<Marker<B>> {
        (self.pause, self.next_pause) = (1, 0);
        let place = self.streams.iter().position(|entry| entry.stream == passed.stream)?;
        let points = &mut self.streams[place].points;
        dropped.extend(points.drain(..points.partition_point(|point| point.tick <= passed.tick)));
        let next = points.get(points.len() / 2).cloned();
        if points.is_empty() {
            self.streams.remove(place);
        }
        next
    }

    /// Returns the earliest point of a stream after its frees in `tick`.
    pub(crate) fn covering(&self, stream: StreamId, tick: u64) -> Option<&Marker<B>> {
        let entry = self.streams.iter().find(|entry| entry.stream == stream)?;
        entry.points.get(entry.points.partition_point(|point| point.tick < tick))
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::host::HostDevice;
    use proptest::prelude::*;
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
            let mut points = Markers::<HostDevice>::new();
            let mut twin = Vec::<(StreamId, Vec<u64>, bool)>::new();
            for (step, stream, tick) in steps {
                let stream = streams[stream];
                let point = || Marker { stream, tick, event: Arc::clone(&event) };
                let place = twin.iter().position(|(other, ..)| *other == stream);
                match step {
                    0 => {
                        let before: usize = twin.iter().map(|(_, ticks, _)| ticks.len()).sum();
                        match place {
                            Some(place) => {
                                let ticks = &mut twin[place].1;
                                if ticks.len() == OF_A_STREAM {
                                    ticks.remove(0);
                                }
                                ticks.push(tick);
                                ticks.sort_unstable();
                            }
                            None => {
                                if twin.len() == STREAMS {
                                    twin.remove(0);
                                }
                                twin.push((stream, vec![tick], true));
                            }
                        }
                        let after: usize = twin.iter().map(|(_, ticks, _)| ticks.len()).sum();
                        prop_assert_eq!(points.add(point()).len(), before + 1 - after);
                    }
                    1 => {
                        let (mut dropped, mut next) = (0, None);
                        if let Some(place) = place {
                            let ticks = &mut twin[place].1;
                            dropped = ticks.extract_if(.., |other| *other <= tick).count();
                            next = ticks.get(ticks.len() / 2).copied();
                            if ticks.is_empty() {
                                twin.remove(place);
                            }
                        }
                        let mut taken = Passed::new();
                        let asked = points.take_until(&point(), &mut taken);
                        prop_assert_eq!((taken.len(), asked.map(|point| point.tick)), (dropped, next));
                    }
                    2 => {
                        let entry = place.map(|place| &mut twin[place]).filter(|(.., may_be)| *may_be);
                        let expected = entry.and_then(|(_, ticks, may_be_done)| {
                            *may_be_done = false;
                            ticks.first().copied().filter(|first| *first < tick)
                        });
                        prop_assert_eq!(points.fallback(stream, tick).map(|point| point.tick), expected);
                    }
                    _ => {
                        let ticks = place.map(|place| &twin[place].1);
                        let expected = ticks.and_then(|ticks| ticks.iter().find(|other| **other >= tick));
                        prop_assert_eq!(points.covering(stream, tick).map(|point| point.tick), expected.copied());
                    }
                }
                let asked: Vec<_> = points.asked().iter().map(|point| (point.stream, point.tick)).collect();
                let of_lane = |(stream, ticks, may_be_done): &(StreamId, Vec<u64>, bool)| {
                    (*stream, if *may_be_done { ticks[ticks.len() - 1] } else { ticks[0] })
                };
                prop_assert_eq!(asked, twin.iter().map(of_lane).collect::<Vec<_>>());
                prop_assert_eq!(points.is_empty(), twin.is_empty());
            }
        }
    }

    /// Streams that advance are polled at every second request, others less and less often, but always eventually.
    #[test]
    fn looks_become_rarer_while_nothing_is_reached() {
        let device = HostDevice::new();
        let stream = device.create_stream().expect("a stream");
        let point = Marker {
            stream: stream.id(),
            tick: 0,
            event: Arc::new(device.record(&stream).expect("no fault")),
        };
        let mut points = Markers::<HostDevice>::new();
        assert!(!points.is_due(), "there are none");
        assert!(points.add(point.clone()).is_empty());
        // Mimics a request.
        let looks = |points: &mut Markers<HostDevice>| {
            let is_due = points.is_due();
            if is_due {
                drop(points.asked())
            } else {
                points.pass()
            }
            is_due
        };
        let looked: Vec<_> = (0..64).filter(|_| looks(&mut points)).collect();
        assert_eq!(looked, [0, 2, 6, 14, 30, 62]);
        assert!(points.take_until(&point, &mut Passed::new()).is_none());
        assert!(points.add(point).is_empty());
        let looked: Vec<_> = (0..10).filter(|_| looks(&mut points)).collect();
        assert_eq!(looked, [1, 3, 7], "one was reached");
    }
}
