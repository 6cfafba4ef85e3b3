//! Polls the [marks](super::timeline) of streams. Requests that find no memory without a wait trigger the
//! poll.

use super::timeline::{Mark, OF_A_STREAM, Passed};
use crate::arena::state::{State, ToMark};
use crate::arena::{DeviceArena, Shared};
use crate::sync::MutexGuard;
use smallvec::SmallVec;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool_backend::{Backend, Capabilities, Event, Stream};

impl<B: Backend> DeviceArena<B> {
    /// Looks how far streams are, if some were marked and it is time. Answers whether it did.
    pub(crate) fn look(&self) -> bool {
        if !self.shared.is_marked.load(Ordering::Relaxed) {
            return false;
        }
        let state = self.shared.state.lock_with_deferred();
        let is_due = state.marks.is_due();
        if is_due {
            drop(self.shared.note_done(state));
        }
        is_due
    }
}

impl<B: Backend> Shared<B> {
    /// Whether a request's own stream is captured, if that may matter. To be asked without the lock.
    #[inline]
    pub(in crate::arena) fn is_captured(&self, stream: &B::Stream) -> Option<bool> {
        // Relaxed: who does not see a mark finds its memory as if there was none.
        self.is_marked.load(Ordering::Relaxed).then(|| self.device.is_capturing(stream) != Ok(false))
    }

    /// The state, for a request: with what streams are known to be done with.
    #[inline]
    pub(in crate::arena) fn lock_for_request(&self) -> MutexGuard<'_, State<B>> {
        let mut state = self.state.lock_with_deferred();
        if state.marks.is_due() {
            return self.note_done(state);
        }
        state.marks.pass();
        state
    }

    /// Asks for each stream how far it is with its marks.
    #[cold]
    pub(in crate::arena) fn note_done<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<B>>,
    ) -> MutexGuard<'a, State<B>> {
        let (mut asked, mut are_any_done) = (state.marks.asked(), false);
        // Not for as long as others add some.
        for rounds_left in (0..OF_A_STREAM).rev() {
            drop(state);
            // Any of these may be an event's last handle, whoever took the others: none is dropped under the
            // lock.
            let mut missed = SmallVec::<[_; 4]>::new();
            asked.retain(|mark| {
                let is_reached = mark.event.is_complete() == Ok(true);
                if !is_reached {
                    missed.push((mark.stream, mark.era));
                }
                is_reached
            });
            state = self.state.lock_with_deferred();
            let (mut gone, mut next) = (Passed::new(), Passed::new());
            next.extend(missed.into_iter().filter_map(|(stream, era)| state.marks.instead(stream, era)));
            for mark in &asked {
                state.unsettled.done(mark.stream, mark.era);
                next.extend(state.marks.take_until(mark, &mut gone));
            }
            if asked.is_empty() && next.is_empty() {
                break;
            }
            are_any_done |= !asked.is_empty();
            if rounds_left == 0 {
                gone.append(&mut next);
            }
            self.is_marked.store(!state.marks.is_empty(), Ordering::Relaxed);
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

    /// Marks how far streams are, which is behind their work on all that was freed until that era was over.
    /// One with which that fails is waited for as it is when its memory is had again; and what is captured is
    /// no work yet.
    #[cold]
    pub(in crate::arena) fn mark(&self, ToMark { streams, era }: &ToMark<B::Stream>) {
        // Streams that never run side by side need not be kept so, and to ask where they are may hurry them.
        if !self.device.properties().capabilities.contains(Capabilities::CONCURRENT_STREAMS) {
            return;
        }
        let mut marks: Passed<B> = Passed::new();
        for user in streams {
            if matches!(self.device.is_capturing(user), Ok(false))
                && let Ok(event) = self.device.record(user)
            {
                marks.push(Mark { stream: user.id(), era: *era, event: Arc::new(event) });
            }
        }
        let are_all = marks.len() == streams.len();
        let mut state = self.state.lock_with_deferred();
        if !are_all {
            state.let_go_unmarked(*era);
        }
        let gone: SmallVec<[_; 2]> = marks.into_iter().map(|mark| state.marks.add(mark)).collect();
        self.is_marked.store(!state.marks.is_empty(), Ordering::Relaxed);
        drop(state);
        drop(gone);
    }
}
