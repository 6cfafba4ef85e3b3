//! Order between streams, and operations that are forbidden on a captured stream: `before` inserts the waits before a
//! use of bytes, `freed` records markers behind a free, `poll` asks the device which markers are complete.
//!
//! Whether a stream is captured is queried only before such an operation, never on a hit.

use super::markers::{Marker, Markers, OF_A_STREAM, Passed};
use super::ticks::{FreedIn, Ticks};
use super::uses::{AwaitedUsers, Streams};
use crate::error::{Error, Forbidden};
use smallvec::SmallVec;
use std::mem;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, Capabilities, CaptureId, DeviceId, Event, Stream, fork};

/// The request for which an operation is needed that a capture forbids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    pub(crate) requested: u64,
    pub(crate) class: u64,
}

/// The point that a stream waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// Data that another stream wrote, which is invalid if its work failed.
    Data,
    /// The end of other streams' work, to reuse the memory; failed work has ended.
    Reuse,
    /// As `Reuse`, for free memory, which has no contents to keep. A captured stream does not wait.
    Memory,
}

impl WaitFor {
    /// Returns 1 for a wait, and 0 if the other stream has failed and its data is not needed.
    pub(crate) fn judge(self, outcome: Result<(), BackendError>) -> Result<u64, Error> {
        match outcome.map_err(Error::from) {
            Err(error) if self != Self::Data && error.is_stream_failed() && !error.is_device_lost() => Ok(0),
            outcome => outcome.map(|()| 1),
        }
    }
}

/// Checks that a stream is of a device.
///
/// # Errors
/// [`Error::WrongDevice`] for a stream of another device; [`BackendError::Forked`].
pub(crate) fn check_device(own: DeviceId, stream: &impl Stream) -> Result<(), Error> {
    fork::check()?;
    let given = stream.device();
    // Numbers first, and names mostly by their address, because every large request is checked.
    let is_own =
        given.key == own.key && (std::ptr::eq(given.backend, own.backend) || given.backend == own.backend);
    if is_own { Ok(()) } else { Err(Error::wrong_device(own, given)) }
}

impl Need {
    pub(crate) fn refused(self, forbidden: Forbidden) -> Error {
        let Self { requested, class } = self;
        Error::Capture { requested_bytes: requested, class_bytes: class, forbidden }
    }

    /// Checks that `stream` is not captured.
    ///
    /// # Errors
    /// [`Error::Capture`] while `stream` is captured.
    pub(crate) fn check<B: Backend>(
        self,
        device: &B,
        stream: &B::Stream,
        forbidden: Forbidden,
    ) -> Result<(), Error> {
        if device.is_capturing(stream)? { Err(self.refused(forbidden)) } else { Ok(()) }
    }

    /// Orders later work of `to` after the `users` of bytes, each with the earliest sufficient marker, if there is
    /// one: inserts a wait for that marker, else for the user's work so far.
    ///
    /// Streams of one capture can wait for each other, and so can streams that are not captured. A capture
    /// cannot wait for work that is done once, and a stream that waits for a capture becomes part of it. With
    /// [`WaitFor::Memory`], a captured stream waits for nothing: its graph might be launched elsewhere before that
    /// work. Complete work then needs neither a wait nor an event. A refusal makes no calls with lasting effect.
    ///
    /// Returns the number of waits, and the capture in which alone the order holds, if the streams are captured.
    ///
    /// # Errors
    /// [`Error::Capture`] for a wait that a capture forbids; errors of the device.
    pub(crate) fn before<'a, B: Backend>(
        self,
        device: &B,
        users: impl IntoIterator<Item = (&'a B::Stream, Option<&'a B::Event>)>,
        to: &B::Stream,
        until: WaitFor,
    ) -> Result<(u64, Option<CaptureId>), Error> {
        let capture = device.capture_of(to)?;
        // Asking may submit open work early, and is useless if streams never run concurrently.
        let asks = until == WaitFor::Memory
            && (capture.is_some()
                || device.properties().capabilities.contains(Capabilities::CONCURRENT_STREAMS));
        let mut open = SmallVec::<[_; 2]>::new();
        for (user, marker) in users.into_iter().filter(|(user, _)| user.id() != to.id()) {
            let is_complete = || marker.map_or_else(|| device.is_idle(user), Event::is_complete);
            if asks && is_complete() == Ok(true) {
                continue;
            }
            let is_allowed = match capture {
                None if marker.is_some() => true,
                Some(_) if until == WaitFor::Memory => false,
                _ => device.capture_of(user)? == capture,
            };
            if !is_allowed {
                return Err(self.refused(Forbidden::Wait));
            }
            open.push((user, marker));
        }
        let mut waits = 0;
        for (user, marker) in open {
            waits += until.judge(match marker {
                Some(marker) => device.wait(to, marker),
                None => device.record(user).and_then(|event| device.wait(to, &event)),
            })?;
        }
        Ok((waits, capture.filter(|_| waits > 0)))
    }
}

/// Freed bytes, whose markers are recorded after all locks are released.
#[derive(Debug)]
pub(crate) struct Freed<S> {
    pub(crate) users: Streams<S>,
    /// The tick that ended with the free.
    pub(crate) tick: u64,
    /// Bytes that work of the first user may still use.
    pub(crate) bytes: u64,
    pub(crate) freed_in: FreedIn,
}

/// The order between streams on the memory of one owner. Call its functions without any lock.
pub(crate) trait Order<B: Backend> {
    fn device(&self) -> &B;

    /// Calls `act` under the lock of the markers and ticks.
    fn with_markers<T>(&self, act: impl FnOnce(&mut Markers<B>, &mut Ticks) -> T) -> T;

    /// Orders later work of `to`, which gets free memory, after the users of that: behind the earliest sufficient
    /// marker, else behind a user's work so far. Returns the number of waits.
    ///
    /// # Errors
    /// As [`Need::before`].
    fn before(&self, users: &AwaitedUsers<B::Stream>, to: &B::Stream, need: Need) -> Result<u64, Error> {
        let (open, now) = self.with_markers(|markers, ticks| {
            let is_open = |(user, tick): &&(B::Stream, u64)| {
                user.id() != to.id() && (*tick == 0 || !ticks.cover(user.id(), to.id(), *tick))
            };
            let marker =
                |user: &B::Stream, tick| markers.covering(user.id(), tick).filter(|_| tick > 0).cloned();
            let marked = users.iter().filter(is_open).map(|(user, tick)| (user, marker(user, *tick)));
            let open: SmallVec<[_; 2]> = marked.collect();
            (open, ticks.begin())
        });
        let events = open.iter().map(|(user, marker)| (*user, marker.as_ref().map(|marker| &*marker.event)));
        let (waits, _) = need.before(self.device(), events, to, WaitFor::Memory)?;
        self.with_markers(|_, ticks| {
            for (user, marker) in &open {
                ticks.waited(user.id(), to.id(), marker.as_ref().map_or(now, |marker| marker.tick));
            }
            if waits > 0 {
                ticks.want_markers();
            }
        });
        Ok(waits)
    }

    /// Records markers after the users' work up to the end of the tick. Captured streams, whose work is not
    /// pending yet, and streams whose device refuses the event get none: the next user of their memory waits for
    /// the stream's work at that time. Returns whether any stream got one.
    fn freed(&self, Freed { users, tick, bytes, freed_in }: &Freed<B::Stream>) -> bool {
        let device = self.device();
        // Markers are useless if streams never run concurrently, and polling them may submit open work early.
        if !device.properties().capabilities.contains(Capabilities::CONCURRENT_STREAMS) {
            return false;
        }
        let marker = |user: &B::Stream| {
            let is_pending = matches!(device.is_capturing(user), Ok(false));
            let event = is_pending.then(|| device.record(user).ok()).flatten()?;
            Some(Marker { stream: user.id(), tick: *tick, event: Arc::new(event) })
        };
        let recorded: Passed<B> = users.iter().filter_map(marker).collect();
        let dropped: SmallVec<[_; 2]> = self.with_markers(|markers, ticks| {
            let is_first = |marker: &&Marker<B>| users.first().is_some_and(|user| user.id() == marker.stream);
            if let Some(first) = recorded.first().filter(is_first) {
                ticks.freed(first.stream, *freed_in, *tick, *bytes);
            }
            for marker in &recorded {
                let idle = ticks.take_unmarked(marker.stream, FreedIn::Bucket);
                ticks.freed(marker.stream, FreedIn::Bucket, *tick, idle);
            }
            recorded.into_iter().map(|marker| markers.add(marker)).collect()
        });
        // Not under the lock.
        !dropped.is_empty()
    }

    /// Asks users of free memory without a marker whether they are idle: then their work up to the end of the tick is
    /// complete. The others get a marker, and so do later frees.
    fn ask(&self, users: Streams<B::Stream>, tick: u64) {
        let is_idle = |user: &B::Stream| self.device().is_idle(user) == Ok(true);
        let (idle, users): (Streams<_>, Streams<_>) = users.into_iter().partition(is_idle);
        let are_busy = !users.is_empty();
        if are_busy {
            self.freed(&Freed { users, tick, bytes: 0, freed_in: FreedIn::Arena });
        }
        self.with_markers(|_, ticks| {
            idle.iter().for_each(|user| ticks.done(user.id(), tick));
            if are_busy {
                ticks.want_markers();
            }
        });
    }

    /// Polls the markers of each stream.
    fn poll(&self) {
        let mut asked = self.with_markers(|markers, _| markers.asked());
        // Bounded, because other threads may add markers meanwhile.
        for _ in 0..OF_A_STREAM {
            // Any of these may be an event's last handle, since another thread may have removed the others: none
            // is dropped under the lock.
            let mut missed = SmallVec::<[_; 4]>::new();
            asked.retain(|marker| {
                let is_reached = marker.event.is_complete() == Ok(true);
                if !is_reached {
                    missed.push((marker.stream, marker.tick));
                }
                is_reached
            });
            let (next, dropped) = self.with_markers(|markers, ticks| {
                let (mut dropped, mut next) = (Passed::new(), Passed::new());
                next.extend(missed.into_iter().filter_map(|(stream, tick)| markers.fallback(stream, tick)));
                for marker in &asked {
                    ticks.done(marker.stream, marker.tick);
                    next.extend(markers.take_until(marker, &mut dropped));
                }
                (next, dropped)
            });
            drop((mem::replace(&mut asked, next), dropped));
            if asked.is_empty() {
                break;
            }
        }
    }
}
