//! The device memory of an arena, and that of before its resizes.

use std::mem;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use vrampool_backend::Memory;

/// Handles that are kept for further buffers.
const HANDLES: usize = 16;

/// The range of an arena. Buffers keep it alive beyond a resize.
#[derive(Debug)]
pub(super) struct DeviceRange<M> {
    memory: Arc<M>,
    /// Handles from freed buffers, for new ones: a count shared between threads is expensive.
    handles: Vec<Arc<M>>,
    /// Ranges that a resize replaced and that buffers keep alive, with their sizes.
    former: Vec<(Weak<M>, u64)>,
}

impl<M: Memory> DeviceRange<M> {
    pub(super) fn new(memory: M) -> Self {
        Self { memory: Arc::new(memory), handles: Vec::with_capacity(HANDLES), former: Vec::new() }
    }

    /// Replaces the memory of a growing arena. Returns the previous one and its kept handles, to be dropped without the
    /// lock.
    pub(super) fn replace(&mut self, memory: M) -> (Arc<M>, Vec<Arc<M>>) {
        let handles = mem::replace(&mut self.handles, Vec::with_capacity(HANDLES));
        (mem::replace(&mut self.memory, Arc::new(memory)), handles)
    }

    /// Takes the place of `before` in a resize.
    pub(super) fn follow(&mut self, before: &mut Self) {
        self.former = mem::take(&mut before.former);
        self.former.retain(|(range, _)| range.strong_count() > 0);
        self.former.push((Arc::downgrade(&before.memory), before.memory.len()));
    }

    /// Its bytes, and those of former ranges that buffers keep alive.
    pub(super) fn reserved_bytes(&self) -> u64 {
        let kept = self.former.iter().filter(|(range, _)| range.strong_count() > 0);
        self.memory.len() + kept.map(|(_, bytes)| bytes).sum::<u64>()
    }

    #[inline]
    pub(super) fn take_handle(&mut self) -> Arc<M> {
        self.handles.pop().unwrap_or_else(|| Arc::clone(&self.memory))
    }

    /// Keeps a handle of the current memory if there is room, else returns it, to be dropped without the lock.
    #[inline]
    pub(super) fn keep_handle(&mut self, handle: Option<Arc<M>>) -> Option<Arc<M>> {
        let is_kept = self.handles.len() < HANDLES
            && handle.as_ref().is_some_and(|handle| Arc::ptr_eq(handle, &self.memory));
        if !is_kept {
            return handle;
        }
        self.handles.extend(handle);
        None
    }
}

impl<M> Deref for DeviceRange<M> {
    type Target = Arc<M>;

    #[inline]
    fn deref(&self) -> &Arc<M> {
        &self.memory
    }
}
