//! Retires unneeded stitched ranges, whole, once the work that may use their addresses is complete.
//!
//! `pages::stitched_ranges` selects them. No request waits for that work on the host: events are recorded
//! when a range is taken out, and polled when others are. Work of other devices cannot be polled; if there
//! may be some, ranges wait for a release that waits for it. They still count, so the bounds hold; a quarter
//! of the bounds is left for them. Only a retry after a refusal waits, without a lock.

use super::release::Waited;
use crate::heap::arena::mapping::{Retiring, Stitched, Weight};
use crate::heap::arena::{ArenaCore, State};
use crate::heap::space::{Extent, runs};
use crate::streams::{Order, Streams};
use vrampool_backend::{Backend, Stream, VirtualMemory, logging};

impl<B: Backend> ArenaCore<B> {
    /// Retires ranges down to three quarters of their bounds. Only for the thread that may change the arena.
    pub(crate) fn retire_surplus(&self) {
        let state = self.state.lock();
        let Some(backing) = &state.backing else { return };
        let most = backing.most_stitched();
        let is_over = !backing.kept_weight().is_within(most.eighths(6));
        let has_some = !backing.retiring.is_empty();
        drop(state);
        if is_over || has_some {
            self.retire_to(is_over.then(|| most.eighths(5)));
        }
    }

    /// Retires ranges to make room for `weight`, or all of them, and unmaps those whose work is complete.
    pub(crate) fn make_way(&self, weight: Weight) {
        let most = self.state.lock().backing.as_ref().map(|backing| backing.most_stitched().minus(weight));
        self.retire_to(most.map(|most| if weight == Weight::MAX { Weight::default() } else { most }));
    }

    /// Retires ranges until the others take at most `most`, if set, and unmaps those whose work is complete.
    fn retire_to(&self, most: Option<Weight>) {
        if let Some(most) = most {
            self.retire(most);
        }
        // Nothing is waited for.
        if let Err(error) = self.release_completed(&[], 0, &Waited::default()) {
            logging::warn!("arena on {}: a stitched range stays, because {error}", self.id);
        }
    }

    /// Starts to retire ranges that no buffer uses. Ranges that a captured stream used stay, because its work runs
    /// whenever the graph is launched.
    fn retire(&self, most: Weight) {
        let mut state = self.state.lock();
        let State { backing: Some(backing), .. } = &mut *state else { return };
        let mut ranges = backing.take_unused(most);
        if ranges.is_empty() {
            return;
        }
        let users = users_of(&state, &ranges);
        let tick = state.uses.ticks.begin();
        drop(state);
        let is_captured = |user: &B::Stream| self.device.is_capturing(user) != Ok(false);
        let (captured, users): (Streams<_>, Streams<_>) = users.into_iter().partition(is_captured);
        self.ask(users.clone(), tick);
        let mut state = self.state.lock();
        let stays = |range: &mut Stitched<B>| {
            let users = users_of(&state, std::slice::from_ref(range));
            users.iter().any(|user| captured.iter().any(|other| other.id() == user.id()))
        };
        let staying: Vec<_> = ranges.extract_if(.., stays).collect();
        let Some(backing) = &mut state.backing else { return };
        backing.restore(staying);
        if ranges.is_empty() {
            return;
        }
        backing.retiring.push_back(Retiring { ranges, users, tick });
    }

    /// Takes retiring ranges whose work is complete, including that of other devices: there are none, or a release
    /// waited for them.
    pub(super) fn take_retired(&self, waited: &Waited) -> Vec<Stitched<B>> {
        if self.state.lock().backing.as_ref().is_none_or(|backing| backing.retiring.is_empty()) {
            return Vec::new();
        }
        Order::poll(self);
        self.ask_retiring();
        let have_others = self.virtual_memory().is_ok_and(VirtualMemory::has_others);
        let mut state = self.state.lock();
        let State { backing: Some(backing), uses, .. } = &mut *state else { return Vec::new() };
        let are_done = |batch: &Retiring<B>| {
            let is_done = |user: &B::Stream| {
                waited.covers(user.id(), batch.tick) || uses.ticks.are_done(user.id(), batch.tick)
            };
            batch.users.iter().all(is_done) && (waited.is_behind(batch.tick) || !have_others)
        };
        let mut retired = Vec::new();
        while backing.retiring.front().is_some_and(are_done)
            && let Some(batch) = backing.retiring.pop_front()
        {
            retired.push(batch);
        }
        drop(state);
        // With handles of streams.
        retired.into_iter().flat_map(|batch| batch.ranges).collect()
    }

    /// Asks users of the ranges that were retired first once more, if they have no marker: the device refused it, or
    /// later ones took its place.
    fn ask_retiring(&self) {
        let state = self.state.lock();
        let batch = state.backing.as_ref().and_then(|backing| backing.retiring.front());
        let Some(Retiring { users, tick, .. }) = batch else { return };
        let is_open = |user: &&B::Stream| {
            !state.uses.ticks.are_done(user.id(), *tick) && state.markers.covering(user.id(), *tick).is_none()
        };
        let (open, tick): (Streams<_>, u64) = (users.iter().filter(is_open).cloned().collect(), *tick);
        drop(state);
        if !open.is_empty() {
            self.ask(open, tick);
        }
    }
}

/// Returns all streams whose work may use addresses of `ranges`, which no buffer has. These are the
/// streams that used free bytes of their pieces, and the streams that got bytes of them since, which are
/// ordered after all earlier users.
fn users_of<B: Backend>(state: &State<B>, ranges: &[Stitched<B>]) -> Streams<B::Stream> {
    let mut pieces: Vec<Extent> = ranges.iter().flat_map(|range| range.pieces.iter().copied()).collect();
    pieces.sort_unstable_by_key(|piece| piece.start);
    pieces.dedup();
    state.users_of_pieces(&runs(&pieces))
}
