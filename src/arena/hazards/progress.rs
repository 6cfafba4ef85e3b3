//! Polls the [markers](crate::streams::markers) of streams when a request finds no memory without a wait.

use crate::arena::DeviceArena;
use crate::arena::core::ArenaCore;
use crate::arena::state::State;
use crate::arena::state_lock::StateGuard;
use crate::streams::markers::Markers;
use crate::streams::order::Order;
use crate::streams::ticks::Ticks;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool_backend::Backend;

impl<B: Backend> DeviceArena<B> {
    /// Whether its streams have markers: a hint that a pool over the arena keeps.
    pub(crate) fn has_markers(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.core.has_markers)
    }

    /// Polls the streams' markers, if a poll is due.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll(&self) {
        drop(self.core.lock_for_request());
    }
}

impl<B: Backend> ArenaCore<B> {
    /// Returns whether a request's stream is captured, if that may matter. Must be called without the lock.
    #[inline]
    pub(in crate::arena) fn is_captured(&self, stream: &B::Stream) -> bool {
        // Relaxed: a thread that does not see a marker places its memory as if there were none.
        self.has_markers.load(Ordering::Relaxed) && self.device.is_capturing(stream) != Ok(false)
    }

    /// Locks the state for a request, after a poll if one is due.
    #[inline]
    pub(in crate::arena) fn lock_for_request(&self) -> StateGuard<'_, B> {
        let mut state = self.state.lock();
        let markers = &mut state.markers;
        if markers.is_due() {
            return self.note_done(state);
        }
        markers.pass();
        state
    }

    /// Polls the markers of each stream.
    #[cold]
    pub(in crate::arena) fn note_done<'a>(&'a self, state: StateGuard<'a, B>) -> StateGuard<'a, B> {
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
        let State { markers, uses, .. } = &mut *self.state.lock();
        let acted = act(markers, &mut uses.ticks);
        self.has_markers.store(!markers.is_empty(), Ordering::Relaxed);
        acted
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::host::HostDevice;
    use crate::streams::order::Freed;
    use std::sync::mpsc::channel;

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
        let tick = arena.core.state.lock().uses.ticks.begin();
        arena.resize(BYTES).expect("memory");
        arena.core.freed(&Freed { users: [reader.clone()].into_iter().collect(), tick, bytes: 0 });
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
