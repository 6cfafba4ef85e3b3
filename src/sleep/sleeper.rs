//! The sleeper: memory under tags with a common limit.

use super::buffer::SleepBuffer;
use super::core::{Places, SleeperCore};
use super::group::Group;
use super::tag;
use super::tag::{DEFAULT_TAG, TagScope};
use super::{SleepState, SleepUsage};
use crate::error::Error;
use std::sync::Arc;
use vrampool_backend::fork::ForkArc;
use vrampool_backend::{Backend, fork, logging};

/// Allocates memory that sleeps by tag: see [the module](super). A clone is a handle to the same sleeper.
///
/// In a [forked](vrampool_backend::fork) child every call that can fail returns
/// [`BackendError::Forked`](crate::BackendError::Forked). Figures are zero, every tag is asleep, and drops
/// have no effect and call no hook.
#[derive(Debug)]
pub struct Sleeper<B: Backend> {
    pub(super) core: ForkArc<SleeperCore<B>>,
}

impl<B: Backend> Clone for Sleeper<B> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone() }
    }
}

impl<B: Backend> Sleeper<B> {
    /// Opens a scope that tags this thread's allocations until the guard is dropped. An inner scope overrides
    /// it.
    ///
    /// Free memory of the tag is released first, so that dropped allocations of an earlier load do not take
    /// up room.
    pub fn tag(&self, tag: &str) -> TagScope {
        let groups = self.core.groups_by_tag();
        let known = groups.and_then(|groups| {
            let (tag, group) = groups.get_key_value(tag)?;
            Some((Arc::clone(tag), group.clone()))
        });
        let tag = match known {
            None => Arc::from(tag),
            Some((tag, group)) => {
                if let Err(error) = group.trim() {
                    logging::warn!("tag {tag}: free memory is not given back: {error}");
                }
                tag
            }
        };
        TagScope::enter(self.core.id, &tag)
    }

    /// Returns the tag that this thread now allocates under.
    #[must_use]
    pub fn current_tag(&self) -> Arc<str> {
        tag::current(self.core.id).unwrap_or_else(|| Arc::from(DEFAULT_TAG))
    }

    /// Allocates a block of `bytes` bytes (at least 1) for work on `stream`.
    ///
    /// Its tag is that of this thread's innermost [scope](Self::tag), or [`DEFAULT_TAG`].
    ///
    /// # Errors
    /// [`Error::Asleep`] under a sleeping tag; [`Error::OutOfMemory`] if memory is insufficient even after
    /// releasing free memory of all tags; else as
    /// [`DeviceArena::allocate`](crate::arena::DeviceArena::allocate).
    pub fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<SleepBuffer<B>, Error> {
        self.allocate_under(&self.current_tag(), bytes, stream)
    }

    /// As [`allocate`](Self::allocate), under the given tag.
    ///
    /// ```
    /// # use vrampool::{Backend, host::HostDevice, sleep::Sleeper};
    /// # fn main() -> Result<(), vrampool::Error> {
    /// # let device = HostDevice::new();
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
    ) -> Result<SleepBuffer<B>, Error> {
        self.allocate_under(&Arc::from(tag), bytes, stream)
    }

    fn allocate_under(
        &self,
        tag: &Arc<str>,
        bytes: u64,
        stream: &B::Stream,
    ) -> Result<SleepBuffer<B>, Error> {
        fork::check()?;
        let core = &self.core;
        let group = core.group(tag)?;
        let block = match group.allocate(bytes, stream) {
            Err(error) if error.is_out_of_memory() && core.relieve() > 0 => group.allocate(bytes, stream),
            outcome => outcome,
        };
        let block = block.map_err(|error| core.explain(error))?;
        let buffer = SleepBuffer::new(block, Arc::clone(tag), bytes, core.clone());
        buffer.tell(&core.callbacks.on_malloc);
        Ok(buffer)
    }

    /// Whether blocks keep their addresses across a wake, as on a device with virtual memory. On others,
    /// rebuild objects that contain an address or a handle (a bind group, a captured graph).
    #[must_use]
    pub fn stable_addresses(&self) -> bool {
        matches!(self.core.places, Places::Addresses { .. })
    }

    /// Returns the most bytes that are mapped as one piece; `None` if no memory is mapped.
    #[must_use]
    pub fn chunk_bytes(&self) -> Option<u64> {
        match self.core.places {
            Places::Addresses { chunk_bytes, .. } => Some(chunk_bytes),
            Places::Separate(_) => None,
        }
    }

    /// Returns its device.
    #[must_use]
    pub fn device(&self) -> &B {
        &self.core.device
    }

    /// Returns all tags that were ever allocated under, in alphabetical order.
    #[must_use]
    pub fn tags(&self) -> Vec<Arc<str>> {
        self.core.groups_by_tag().map_or_else(Vec::new, |groups| groups.keys().cloned().collect())
    }

    /// Returns whether a tag's memory can be used. An unknown tag is awake.
    #[must_use]
    pub fn state_of(&self, tag: &str) -> SleepState {
        match self.core.groups_by_tag() {
            Some(groups) => groups.get(tag).map_or(SleepState::Awake, Group::state),
            None => SleepState::Asleep,
        }
    }

    /// Returns the usage of all tags. Not one consistent snapshot: tags are read one by one.
    pub fn usage(&self) -> SleepUsage {
        self.core.usage()
    }

    /// Returns the usage of one tag.
    pub fn usage_of(&self, tag: &str) -> SleepUsage {
        let groups = self.core.groups_by_tag();
        groups.and_then(|groups| groups.get(tag).map(Group::usage)).unwrap_or_default()
    }

    /// Releases free memory of all awake tags to the device. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`DeviceArena::release`](crate::arena::DeviceArena::release).
    pub fn trim(&self) -> Result<u64, Error> {
        fork::check()?;
        self.core.groups().iter().try_fold(0, |sum, (_, group)| Ok(sum + group.trim()?))
    }
}
