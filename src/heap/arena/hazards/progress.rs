//! Polls the [markers](crate::streams::markers) of streams when a request finds no memory without a wait, or waits on
//! the host, so that a captured stream can use free memory.

use crate::error::Error;
use crate::heap::BackendState;
use crate::heap::arena::{ArenaCore, DeviceArena, StateGuard};
use crate::streams::{Markers, Order, Streams, Ticks};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool_backend::{Backend, Stream, StreamId, fork};

impl<B: Backend> DeviceArena<B> {
    /// Whether its streams have markers, or are to be asked: a hint that a pool over the arena keeps.
    pub(crate) fn has_markers(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.core.has_markers)
    }

    /// As [`Order::with_markers`], for the pool over the arena.
    pub(crate) fn with_markers<T>(&self, act: impl FnOnce(&mut Markers<B>, &mut Ticks) -> T) -> T {
        Order::with_markers(&*self.core, act)
    }

    /// Returns the markers and ticks in a locked depot, if it has an arena.
    pub(crate) fn order_in(backend_state: &BackendState) -> Option<(&Markers<B>, &Ticks)> {
        backend_state.arena::<B>().map(|state| (&state.markers, &state.uses.ticks))
    }

    /// Waits on the host until `stream` can use free memory without a wait on the device.
    ///
    /// It waits for the pending work of all streams that used free memory, except captured ones. Use it for a
    /// capture whose requests are refused because of such streams. Memory that another captured stream used
    /// belongs to its graph, and stays refused.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]; [`Error::Backend`] if the device fails, and then no wait is recorded.
    pub fn synchronize_freed(&self, stream: &B::Stream) -> Result<(), Error> {
        fork::check()?;
        let core = &self.core;
        core.check_device(stream)?;
        let mut state = core.state.lock();
        // Later frees belong to another tick, and are not waited for.
        let (users, tick) =
            (state.users_of_free(|user, _| user.id() != stream.id()), state.uses.ticks.begin());
        drop(state);
        let mut waited: Streams<B::Stream> = Streams::new();
        for user in users {
            if !core.device.is_capturing(&user)? {
                core.device.synchronize(&user)?;
                waited.push(user);
            }
        }
        let mut state = core.state.lock();
        waited.iter().for_each(|user| state.uses.ticks.waited(user.id(), stream.id(), tick));
        drop(state);
        Ok(())
    }

    /// Polls the streams' markers, if a poll is due, and asks streams other than `stream`.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll(&self, stream: &B::Stream) {
        drop(self.core.lock_for_request(stream));
    }
}

impl<B: Backend> ArenaCore<B> {
    /// Locks the state for a request of `stream`, after a poll if one is due, and after other streams that freed
    /// memory without a marker were asked whether they are idle.
    #[inline]
    pub(in crate::heap::arena) fn lock_for_request(&self, stream: &B::Stream) -> StateGuard<'_, B> {
        let mut state = self.state.lock();
        if state.markers.is_due() {
            state = self.note_done(state);
        } else {
            state.markers.pass();
        }
        if state.uses.are_others_unasked(stream.id()) { self.ask_others(state, stream.id()) } else { state }
    }

    #[cold]
    fn ask_others<'a>(&'a self, mut state: StateGuard<'a, B>, stream: StreamId) -> StateGuard<'a, B> {
        let (users, tick) = (state.uses.take_unasked(stream), state.uses.ticks.begin());
        drop(state);
        self.ask(users, tick);
        self.state.lock()
    }

    /// Keeps the hint that requests have markers to poll, or streams to ask.
    #[inline]
    pub(in crate::heap::arena) fn note_markers(&self, are_any: bool) {
        if are_any && !self.has_markers.load(Ordering::Relaxed) {
            self.has_markers.store(true, Ordering::Relaxed);
        }
    }

    /// Polls the markers of each stream.
    #[cold]
    pub(in crate::heap::arena) fn note_done<'a>(&'a self, state: StateGuard<'a, B>) -> StateGuard<'a, B> {
        drop(state);
        Order::poll(self);
        self.state.lock()
    }
}

impl<B: Backend> Order<B> for ArenaCore<B> {
    fn device(&self) -> &B {
        &self.device
    }

    fn with_markers<T>(&self, act: impl FnOnce(&mut Markers<B>, &mut Ticks) -> T) -> T {
        let state = &mut *self.state.lock();
        let acted = act(&mut state.markers, &mut state.uses.ticks);
        let are_any_to_ask = !state.markers.is_empty() || state.uses.are_any_unasked();
        self.has_markers.store(are_any_to_ask, Ordering::Relaxed);
        acted
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::host::HostDevice;
    use crate::streams::{Freed, FreedIn};
    use std::sync::mpsc::channel;

    /// A marker that was begun before a resize is added to the markers of the next range.
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
        let tick = arena.core.state.lock().uses.ticks.begin();
        arena.resize(BYTES).expect("memory");
        let users = [reader.clone()].into_iter().collect();
        arena.core.freed(&Freed { users, tick, bytes: 0, freed_in: FreedIn::Arena });
        device.synchronize(&reader).expect("no fault");
        let (go, signal) = channel::<()>();
        let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| _ = signal.recv();
        reader.launch([], [], kernel).expect("queued");
        free();
        let waits = arena.stream_waits();
        let _next = arena.allocate(BYTES, &writer).expect("memory");
        assert_eq!(arena.stream_waits(), waits + 1, "the marker does not cover the later free");
        go.send(()).expect("it listens");
    }
}
