//! Polls the [points](super::timeline) of streams when a request finds no memory without a wait.

use super::timeline::{OF_A_STREAM, Passed, StreamPoint};
use crate::arena::DeviceArena;
use crate::arena::core::ArenaCore;
use crate::arena::state::{State, ToRecord};
use crate::sync::MutexGuard;
use smallvec::SmallVec;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool_backend::{Backend, Capabilities, Event, Stream};

impl<B: Backend> DeviceArena<B> {
    /// Polls the streams' points, if there are any and a poll is due. Returns whether it polled.
    pub(crate) fn poll(&self) -> bool {
        if !self.core.has_points.load(Ordering::Relaxed) {
            return false;
        }
        let state = self.core.state.lock_with_deferred();
        let is_due = state.timeline.is_due();
        if is_due {
            drop(self.core.note_done(state));
        }
        is_due
    }
}

impl<B: Backend> ArenaCore<B> {
    /// Returns whether a request's stream is captured, if that may matter. Must be called without the lock.
    #[inline]
    pub(in crate::arena) fn is_captured(&self, stream: &B::Stream) -> Option<bool> {
        // Relaxed: a thread that does not see a point places its memory as if there were none.
        self.has_points.load(Ordering::Relaxed).then(|| self.device.is_capturing(stream) != Ok(false))
    }

    /// Locks the state for a request, after a poll if one is due.
    #[inline]
    pub(in crate::arena) fn lock_for_request(&self) -> MutexGuard<'_, State<B>> {
        let mut state = self.state.lock_with_deferred();
        if state.timeline.is_due() {
            return self.note_done(state);
        }
        state.timeline.pass();
        state
    }

    /// Polls the points of each stream.
    #[cold]
    pub(in crate::arena) fn note_done<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<B>>,
    ) -> MutexGuard<'a, State<B>> {
        let (mut asked, mut are_any_done) = (state.timeline.asked(), false);
        // Bounded, because other threads may add points meanwhile.
        for rounds_left in (0..OF_A_STREAM).rev() {
            drop(state);
            // Any of these may be an event's last handle, since another thread may have removed the others:
            // none is dropped under the lock.
            let mut missed = SmallVec::<[_; 4]>::new();
            asked.retain(|point| {
                let is_reached = point.event.is_complete() == Ok(true);
                if !is_reached {
                    missed.push((point.stream, point.era));
                }
                is_reached
            });
            state = self.state.lock_with_deferred();
            let (mut gone, mut next) = (Passed::new(), Passed::new());
            next.extend(missed.into_iter().filter_map(|(stream, era)| state.timeline.instead(stream, era)));
            for point in &asked {
                state.unsettled.done(point.stream, point.era);
                next.extend(state.timeline.take_until(point, &mut gone));
            }
            if asked.is_empty() && next.is_empty() {
                break;
            }
            are_any_done |= !asked.is_empty();
            if rounds_left == 0 {
                gone.append(&mut next);
            }
            self.has_points.store(!state.timeline.is_empty(), Ordering::Relaxed);
            drop(state);
            drop((mem::replace(&mut asked, next), gone));
            state = self.state.lock_with_deferred();
            if asked.is_empty() {
                break;
            }
        }
        if are_any_done {
            state.let_go_done();
        }
        state
    }

    /// Records points after the work of `streams` on everything freed until the end of `era`. If recording
    /// fails for a stream, the next user of its memory waits for the stream's work at that time. A captured
    /// stream has no work to record yet.
    #[cold]
    pub(in crate::arena) fn record_points(&self, ToRecord { streams, era }: &ToRecord<B::Stream>) {
        // Points are useless if streams never run concurrently, and polling them may submit open work early.
        if !self.device.properties().capabilities.contains(Capabilities::CONCURRENT_STREAMS) {
            return;
        }
        let mut points: Passed<B> = Passed::new();
        for user in streams {
            if matches!(self.device.is_capturing(user), Ok(false))
                && let Ok(event) = self.device.record(user)
            {
                points.push(StreamPoint { stream: user.id(), era: *era, event: Arc::new(event) });
            }
        }
        let are_all = points.len() == streams.len();
        let mut state = self.state.lock_with_deferred();
        if !are_all {
            state.let_go_unrecorded(*era);
        }
        let gone: SmallVec<[_; 2]> = points.into_iter().map(|point| state.timeline.add(point)).collect();
        self.has_points.store(!state.timeline.is_empty(), Ordering::Relaxed);
        drop(state);
        drop(gone);
    }
}
