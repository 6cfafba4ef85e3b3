//! The order of frees and markers, and how far streams are known to have advanced. Numbers only.
//!
//! A free happens in a *tick*. A marker ends a tick, and begins the next one before the event is recorded: so
//! an event covers all frees up to its tick, and possibly later work.

use super::happens_before::{HappensBefore, StreamOrder, Wait};
use super::policy;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::StreamId;

/// Most frees whose bytes are counted separately. Others are counted with the next one of their stream.
const MOST: usize = 256;

/// Number of markers that frees record after a request found memory that a busy stream uses.
const WANTED: u32 = 256;

/// Number of markers that frees record before the first such request.
const FIRST: u32 = 16;

/// Most streams whose unmarked bytes are counted.
const STREAMS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Ticks {
    /// The stream of the first request.
    first: Option<StreamId>,
    /// Whether another stream made a request, or used a block.
    are_several: bool,
    now: u64,
    happens_before: HappensBefore,
    /// Frees with a marker whose work is not known to be complete, by tick.
    frees: VecDeque<Free>,
    /// Bytes that each stream freed after its last marker.
    unmarked: SmallVec<[(StreamId, FreedIn, u64); 4]>,
    /// Markers that frees still record.
    wanted: u32,
    /// Read without the lock, too.
    in_flight: Arc<AtomicU64>,
    /// The part of it in buckets.
    bucket_in_flight: u64,
}

/// Where freed bytes are. An arena counts those in a bucket as live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FreedIn {
    Bucket,
    Arena,
}

/// Freed bytes that work of a stream, up to the end of a tick, may still use.
#[derive(Debug)]
struct Free {
    user: StreamId,
    freed_in: FreedIn,
    tick: u64,
    bytes: u64,
}

impl Ticks {
    /// Creates ticks that begin with 1, for records in which 0 means that no tick is known.
    pub(crate) fn from_one() -> Self {
        Self { now: 1, wanted: FIRST, ..Self::default() }
    }

    /// Creates the ticks of other memory of the same program. All of them are later.
    pub(crate) fn after(&mut self) -> Self {
        let (first, are_several, in_flight) = (self.first, self.are_several, Arc::clone(&self.in_flight));
        in_flight.store(0, Ordering::Relaxed);
        Self { first, are_several, now: self.begin() + 1, wanted: self.wanted, in_flight, ..Self::default() }
    }

    /// Records a request of a stream.
    #[inline]
    pub(crate) fn used_by(&mut self, stream: StreamId) {
        if self.first != Some(stream) {
            self.are_several |= self.first.is_some();
            self.first.get_or_insert(stream);
        }
    }

    /// Records that several streams used a block.
    pub(crate) fn shared(&mut self) {
        self.are_several = true;
    }

    /// Whether several streams use the memory, so that frees of large blocks may get markers.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        self.are_several
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Ends a tick, because a stream is about to wait or to get a marker. Must be called before the device
    /// call. Returns the ended tick.
    pub(crate) fn begin(&mut self) -> u64 {
        self.now += 1;
        self.now - 1
    }

    /// Records that `stream` is ordered after the work of `user` up to the end of `tick`.
    pub(crate) fn waited(&mut self, user: StreamId, stream: StreamId, tick: u64) {
        self.happens_before.add(Wait { user, stream: Some(stream), tick });
    }

    /// Records that the work of `user` up to the end of `tick` is complete.
    pub(crate) fn done(&mut self, user: StreamId, tick: u64) {
        self.happens_before.add(Wait { user, stream: None, tick });
        if self.frees.is_empty() {
            return;
        }
        let (mut idle, mut free) = (0, 0);
        self.frees.retain(|of| {
            let stays = of.user != user || of.tick > tick;
            if !stays {
                *if of.freed_in == FreedIn::Bucket { &mut idle } else { &mut free } += of.bytes;
            }
            stays
        });
        self.subtract(FreedIn::Bucket, idle);
        self.subtract(FreedIn::Arena, free);
    }

    /// Whether the work of `user` up to the end of `tick` is known to be complete.
    #[inline]
    pub(crate) fn are_done(&self, user: StreamId, tick: u64) -> bool {
        self.happens_before.are_done(user, tick)
    }

    /// Whether `stream` is ordered after the work of `user` up to the end of `tick`.
    #[inline]
    pub(crate) fn cover(&self, user: StreamId, stream: StreamId, tick: u64) -> bool {
        user == stream || self.happens_before.cover(user, stream, tick)
    }

    /// Returns the ticks up to which `stream` is ordered after others.
    pub(crate) fn reach(&self, stream: StreamId) -> StreamOrder {
        self.happens_before.reach(stream)
    }

    /// Counts bytes that were freed until the end of `tick`, behind a marker of `user`.
    pub(crate) fn freed(&mut self, user: StreamId, freed_in: FreedIn, tick: u64, bytes: u64) {
        // Another thread may have polled the marker.
        if bytes == 0 || self.are_done(user, tick) {
            return;
        }
        if self.frees.len() == MOST
            && let Some(oldest) = self.frees.pop_front()
        {
            let is_alike = |free: &&mut Free| (free.user, free.freed_in) == (oldest.user, oldest.freed_in);
            match self.frees.iter_mut().find(is_alike) {
                Some(next) => next.bytes += oldest.bytes,
                None => self.subtract(oldest.freed_in, oldest.bytes),
            }
        }
        let place = self.frees.partition_point(|free| free.tick <= tick);
        self.frees.insert(place, Free { user, freed_in, tick, bytes });
        self.bucket_in_flight += if freed_in == FreedIn::Bucket { bytes } else { 0 };
        self.in_flight.store(self.in_flight() + bytes, Ordering::Relaxed);
    }

    /// Records that a request found memory in use by a busy stream: the next [`WANTED`] markers are recorded.
    pub(crate) fn want_markers(&mut self) {
        self.wanted = WANTED;
    }

    /// Whether frees get markers. They are not needed while streams find memory of their own, or of idle streams.
    #[inline]
    pub(crate) fn are_markers_wanted(&self) -> bool {
        self.wanted > 0
    }

    /// Whether the free of a block of `bytes` gets markers: if several streams used it, and else if markers are wanted
    /// and one of its only `user` is [due](policy::is_marker_due).
    pub(crate) fn is_marker_due(
        &self,
        user: Option<StreamId>,
        freed_in: FreedIn,
        bytes: u64,
        needed: u64,
    ) -> bool {
        user.is_none_or(|user| {
            self.are_markers_wanted() && policy::is_marker_due(self.unmarked(user, freed_in), bytes, needed)
        })
    }

    /// Bytes that a stream freed after its last marker.
    fn unmarked(&self, user: StreamId, freed_in: FreedIn) -> u64 {
        let is_alike = |of: &&(StreamId, FreedIn, u64)| (of.0, of.1) == (user, freed_in);
        self.unmarked.iter().find(is_alike).map_or(0, |(.., bytes)| *bytes)
    }

    fn unmarked_mut(&mut self, user: StreamId, freed_in: FreedIn) -> Option<&mut u64> {
        let mut unmarked = self.unmarked.iter_mut();
        unmarked.find(|of| (of.0, of.1) == (user, freed_in)).map(|(.., bytes)| bytes)
    }

    /// Counts bytes that a stream freed without a marker.
    pub(crate) fn freed_unmarked(&mut self, user: StreamId, freed_in: FreedIn, bytes: u64) {
        match self.unmarked_mut(user, freed_in) {
            Some(unmarked) => *unmarked += bytes,
            None => {
                if self.unmarked.len() == STREAMS {
                    self.unmarked.remove(0);
                }
                self.unmarked.push((user, freed_in, bytes));
            }
        }
    }

    /// Counts a marker, or several of one free. After the last one that is wanted, bytes without a marker are not
    /// counted.
    pub(crate) fn count_marker(&mut self) {
        self.wanted = self.wanted.saturating_sub(1);
        if self.wanted == 0 {
            self.unmarked.clear();
        }
    }

    /// Returns the bytes that a stream freed since its last marker, because it gets another one.
    pub(crate) fn take_unmarked(&mut self, user: StreamId, freed_in: FreedIn) -> u64 {
        let place = self.unmarked.iter().position(|of| (of.0, of.1) == (user, freed_in));
        place.map_or(0, |place| self.unmarked.swap_remove(place).2)
    }

    /// Counts bytes that `user` freed in `tick` as live again.
    pub(crate) fn reused(&mut self, user: StreamId, freed_in: FreedIn, tick: u64, bytes: u64) {
        let first = self.frees.partition_point(|free| free.tick < tick);
        let mut frees = self.frees.iter_mut().enumerate().skip(first);
        if let Some((place, free)) = frees.find(|(_, free)| (free.user, free.freed_in) == (user, freed_in)) {
            let bytes = bytes.min(free.bytes);
            free.bytes -= bytes;
            if free.bytes == 0 {
                self.frees.remove(place);
            }
            self.subtract(freed_in, bytes);
        } else if let Some(unmarked) = self.unmarked_mut(user, freed_in) {
            *unmarked = unmarked.saturating_sub(bytes);
        }
    }

    /// Whether any freed bytes are counted, in flight or without a marker.
    #[inline]
    pub(crate) fn are_any_freed(&self) -> bool {
        !self.unmarked.is_empty() || self.in_flight() > 0
    }

    /// Free bytes in flight of streams other than `stream`.
    pub(crate) fn free_in_flight_of_others(&self, stream: StreamId) -> u64 {
        let is_such = |free: &&Free| free.user != stream && free.freed_in == FreedIn::Arena;
        self.frees.iter().filter(is_such).map(|free| free.bytes).sum()
    }

    /// The part of [`in_flight`](Self::in_flight) that is free in an arena.
    pub(crate) fn free_in_flight(&self) -> u64 {
        self.in_flight().saturating_sub(self.bucket_in_flight)
    }

    /// Freed bytes behind markers that are not known to be complete.
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Returns that number, to be read without the lock of the ticks.
    pub(crate) fn shared_in_flight(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.in_flight)
    }

    /// Only the owner of the ticks writes. Ticks [after](Self::after) these may have begun anew.
    fn subtract(&mut self, freed_in: FreedIn, bytes: u64) {
        if freed_in == FreedIn::Bucket {
            self.bucket_in_flight = self.bucket_in_flight.saturating_sub(bytes);
        }
        self.in_flight.store(self.in_flight().saturating_sub(bytes), Ordering::Relaxed);
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::host::HostDevice;
    use vrampool_backend::{Backend, Stream};

    #[test]
    fn bytes_without_a_marker_are_in_flight_with_the_next_one_unless_they_are_live_again() {
        let device = HostDevice::new();
        let [own, other] = [(); 2].map(|()| device.create_stream().expect("a stream").id());
        let mut ticks = Ticks::from_one();
        let first = ticks.now();
        ticks.freed_unmarked(own, FreedIn::Arena, 100);
        ticks.freed_unmarked(other, FreedIn::Arena, 7);
        assert_eq!(
            (ticks.unmarked(own, FreedIn::Arena), ticks.in_flight(), ticks.are_any_freed()),
            (100, 0, true)
        );
        ticks.reused(own, FreedIn::Arena, first, 30);
        let asked = ticks.begin();
        ticks.freed(own, FreedIn::Arena, asked, 0);
        let unmarked = ticks.take_unmarked(own, FreedIn::Arena);
        let tick = ticks.begin();
        ticks.freed(own, FreedIn::Arena, tick, unmarked + 50);
        assert_eq!((ticks.unmarked(own, FreedIn::Arena), ticks.in_flight()), (0, 120));
        // Freed before the marker, so they are counted with it, and not with one that has no bytes; those of the
        // other stream are its own.
        ticks.reused(own, FreedIn::Arena, first, 20);
        ticks.reused(other, FreedIn::Arena, first, 3);
        assert_eq!((ticks.unmarked(other, FreedIn::Arena), ticks.in_flight()), (4, 100));
        ticks.done(own, tick);
        assert_eq!(ticks.in_flight(), 0);
        ticks.freed(own, FreedIn::Arena, tick, 8);
        assert_eq!(ticks.in_flight(), 0, "it is known to be complete");
    }

    #[test]
    fn streams_that_come_and_go_leave_a_bounded_number_of_records() {
        let device = HostDevice::new();
        let mut ticks = Ticks::default();
        for _ in 0..2 * STREAMS {
            ticks.freed_unmarked(device.create_stream().expect("a stream").id(), FreedIn::Bucket, 1);
        }
        assert_eq!(ticks.unmarked.len(), STREAMS);
    }
}
