//! The sleeper: memory under tags with a common limit.

use crate::arena::SleepArena;
use crate::buffer::SleepBuffer;
use crate::error::Error;
use crate::reports::SleepState;
use crate::shared::Shared;
use crate::tag;
use crate::tag::{DEFAULT_TAG, TagScope};
use crate::usage::{SleepCounts, SleepUsage};
use std::sync::Arc;
use vrampool::Backend;
use vrampool::backend::fork::ForkArc;
use vrampool::backend::{fork, logging};

/// Allocates memory that sleeps by tag: see [the crate](crate). A clone is a handle to the same sleeper.
///
/// In a [forked](vrampool::backend::fork) child every call that can fail returns
/// [`BackendError::Forked`](vrampool::BackendError::Forked). Figures are zero, every tag is asleep, and drops
/// have no effect and call no hook.
#[derive(Debug)]
pub struct Sleeper<B: Backend> {
    pub(super) shared: ForkArc<Shared<B>>,
}

impl<B: Backend> Clone for Sleeper<B> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<B: Backend> Sleeper<B> {
    /// Opens a scope that tags this thread's allocations until the guard is dropped. An inner scope overrides
    /// it.
    ///
    /// Free memory of the tag is released first, so that dropped allocations of an earlier load do not take
    /// up room.
    pub fn tag(&self, tag: &str) -> TagScope {
        let arenas = self.shared.arenas_by_tag();
        let known = arenas.and_then(|arenas| {
            let (tag, arena) = arenas.get_key_value(tag)?;
            Some((Arc::clone(tag), arena.clone()))
        });
        let tag = match known {
            None => Arc::from(tag),
            Some((tag, arena)) => {
                if let Err(error) = arena.arena().release(0) {
                    logging::warn!("tag {tag}: free memory is not released: {error}");
                }
                tag
            }
        };
        TagScope::enter(self.shared.id, &tag)
    }

    /// Returns the tag that this thread allocates under.
    #[must_use]
    pub fn current_tag(&self) -> Arc<str> {
        tag::current(self.shared.id).unwrap_or_else(|| Arc::from(DEFAULT_TAG))
    }

    /// Allocates a block of `bytes` bytes (at least 1) for work on `stream`.
    ///
    /// Its tag is that of this thread's innermost [scope](Self::tag), or [`DEFAULT_TAG`].
    ///
    /// # Errors
    /// [`Asleep`](vrampool::Error::Asleep) under a sleeping tag; [`OutOfMemory`](vrampool::Error::OutOfMemory) if memory
    /// is insufficient even after releasing free memory of all tags; else as
    /// [`DeviceArena::allocate`](vrampool::arena::DeviceArena::allocate).
    pub fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<SleepBuffer<B>, vrampool::Error> {
        self.allocate_under(&self.current_tag(), bytes, stream)
    }

    /// As [`allocate`](Self::allocate), under the given tag.
    ///
    /// ```
    /// # use vrampool::{Backend, host::HostDevice};
    /// # use vrampool_sleep::{Error, Sleeper};
    /// # fn main() -> Result<(), Error> {
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// # let stream = device.create_stream()?;
    /// let sleeper = Sleeper::new(&device)?;
    /// let cache = sleeper.allocate_tagged(8 << 20, "kv_cache", &stream)?;
    /// assert_eq!(cache.tag(), "kv_cache");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn allocate_tagged(
        &self,
        bytes: u64,
        tag: &str,
        stream: &B::Stream,
    ) -> Result<SleepBuffer<B>, vrampool::Error> {
        self.allocate_under(&Arc::from(tag), bytes, stream)
    }

    fn allocate_under(
        &self,
        tag: &Arc<str>,
        bytes: u64,
        stream: &B::Stream,
    ) -> Result<SleepBuffer<B>, vrampool::Error> {
        fork::check()?;
        let shared = &self.shared;
        let arena = shared.arena_of(tag)?;
        let allocate = || arena.arena().allocate(bytes, stream);
        let block = match allocate() {
            Err(error) if error.is_out_of_memory() && shared.relieve() > 0 => allocate(),
            outcome => outcome,
        };
        let block = block.map_err(|error| shared.explain(error))?;
        let buffer = SleepBuffer::new(block, (Arc::clone(tag), arena), bytes, shared.clone());
        buffer.tell(&shared.callbacks.on_malloc);
        Ok(buffer)
    }

    /// Returns the most bytes that are mapped as one piece.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        self.shared.chunk_bytes
    }

    /// Returns its name in metrics.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns how often it slept and woke.
    pub fn counts(&self) -> SleepCounts {
        if fork::is_child() { SleepCounts::default() } else { *self.shared.counts.lock() }
    }

    /// Returns its device.
    #[must_use]
    pub fn device(&self) -> &B {
        &self.shared.device
    }

    /// Returns all tags that were ever allocated under, in alphabetical order.
    #[must_use]
    pub fn tags(&self) -> Vec<Arc<str>> {
        self.shared.arenas_by_tag().map_or_else(Vec::new, |arenas| arenas.keys().cloned().collect())
    }

    /// Returns whether a tag's memory can be used. A tag without blocks is awake.
    ///
    /// # Errors
    /// [`Error::UnknownTag`].
    pub fn state_of(&self, tag: &str) -> Result<SleepState, Error> {
        self.shared.check_tags(&[tag])?;
        Ok(match self.shared.arenas_by_tag() {
            Some(arenas) => arenas.get(tag).map_or(SleepState::Awake, SleepArena::state),
            None => SleepState::Asleep,
        })
    }

    /// Returns the usage of all tags. Not one consistent snapshot: tags are read one by one.
    pub fn usage(&self) -> SleepUsage {
        self.shared.usage()
    }

    /// Returns the usage of one tag.
    ///
    /// # Errors
    /// [`Error::UnknownTag`].
    pub fn usage_of(&self, tag: &str) -> Result<SleepUsage, Error> {
        self.shared.check_tags(&[tag])?;
        let arenas = self.shared.arenas_by_tag();
        Ok(arenas.and_then(|arenas| arenas.get(tag).map(SleepUsage::of)).unwrap_or_default())
    }

    /// Releases free memory of all awake tags to the device. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`DeviceArena::release`](vrampool::arena::DeviceArena::release).
    pub fn trim(&self) -> Result<u64, vrampool::Error> {
        fork::check()?;
        self.shared.arenas().iter().try_fold(0, |sum, (_, arena)| Ok(sum + arena.arena().release(0)?))
    }
}
