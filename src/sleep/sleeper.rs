//! The sleeper: memory under tags with a common limit.

use super::buffer::SleepBuffer;
use super::callbacks::Callbacks;
use super::group::Group;
use super::loose::Loose;
use super::tag;
use super::tag::{DEFAULT_TAG, TagScope};
use super::{Offload, SleepState, SleepUsage};
use crate::arena::{Allowance, DeviceArena};
use crate::error::Error;
use crate::pool::Pool;
use crate::sync::fork_arc::ForkArc;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use vrampool_backend::{Backend, MemoryKind, fork};

/// Hands out memory that sleeps by tag: see [the module](super). A clone is another handle to the same
/// sleeper.
///
/// In a [forked](vrampool_backend::fork) child every call that can fail returns
/// [`BackendError::Forked`](crate::BackendError::Forked). Figures are zero, every tag is asleep, drops have
/// no effect and call no hook.
#[derive(Debug)]
pub struct Sleeper<B: Backend> {
    pub(super) core: ForkArc<SleeperCore<B>>,
}

impl<B: Backend> Clone for Sleeper<B> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone() }
    }
}

/// State that a sleeper's handles and blocks share.
#[derive(Debug)]
pub(super) struct SleeperCore<B: Backend> {
    pub(super) id: u64,
    pub(super) device: B,
    pub(super) kind: MemoryKind,
    pub(super) limit: Option<u64>,
    pub(super) offload: Offload,
    pub(super) places: Places<B>,
    /// By tag.
    pub(super) groups: Mutex<BTreeMap<Arc<str>, Group<B>>>,
    /// One sleep or wake at a time.
    pub(super) changing: Mutex<()>,
    pub(super) callbacks: Callbacks,
}

/// The location of blocks.
#[derive(Debug)]
pub(super) enum Places<B: Backend> {
    /// In a growing arena for each tag.
    Addresses { allowance: Allowance, chunk_bytes: u64 },
    /// Each by itself.
    Loose(Pool<B>),
}

impl<B: Backend> Sleeper<B> {
    /// Opens a scope: what this thread allocates is tagged so until the guard is dropped, or in an inner
    /// scope otherwise. Free memory of the tag is given back first, so that what was loaded under it before
    /// and dropped is not in the way.
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
                    log::warn!("tag {tag}: free memory is not given back: {error}");
                }
                tag
            }
        };
        TagScope::enter(self.core.id, &tag)
    }

    /// The tag that this thread allocates under now.
    #[must_use]
    pub fn current_tag(&self) -> Arc<str> {
        tag::current(self.core.id).unwrap_or_else(|| Arc::from(DEFAULT_TAG))
    }

    /// A block of `bytes` bytes (at least 1), under the tag of this thread's innermost [scope](Self::tag),
    /// else under [`DEFAULT_TAG`], for work on `stream`.
    ///
    /// # Errors
    /// [`Error::Asleep`] under a tag that is asleep; [`Error::Backend`], [`Error::OutOfMemory`] and the like
    /// when there is no memory, also after free memory of all tags was given back; else as
    /// [`DeviceArena::allocate`].
    pub fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<SleepBuffer<B>, Error> {
        self.allocate_under(&self.current_tag(), bytes, stream)
    }

    /// As [`allocate`](Self::allocate), under this tag.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn allocate_tagged(
        &self,
        tag: &str,
        bytes: u64,
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
        let buffer = SleepBuffer::new(block?, Arc::clone(tag), bytes, core.clone());
        buffer.tell(&core.callbacks.on_malloc);
        Ok(buffer)
    }

    /// Whether blocks have the same address after a wake: on a device with virtual memory. On others, what
    /// has an address or a handle in it (a bind group, a captured graph) must be built anew.
    #[must_use]
    pub fn stable_addresses(&self) -> bool {
        matches!(self.core.places, Places::Addresses { .. })
    }

    /// The most bytes that are mapped as one piece; `None` where nothing is mapped.
    #[must_use]
    pub fn chunk_bytes(&self) -> Option<u64> {
        match self.core.places {
            Places::Addresses { chunk_bytes, .. } => Some(chunk_bytes),
            Places::Loose(_) => None,
        }
    }

    /// The device it is on.
    #[must_use]
    pub fn device(&self) -> &B {
        &self.core.device
    }

    /// All tags that anything was allocated under, in the order of the alphabet.
    #[must_use]
    pub fn tags(&self) -> Vec<Arc<str>> {
        self.core.groups_by_tag().map_or_else(Vec::new, |groups| groups.keys().cloned().collect())
    }

    /// Whether the memory of a tag can be used; a tag that nothing was allocated under is awake.
    #[must_use]
    pub fn state_of(&self, tag: &str) -> SleepState {
        match self.core.groups_by_tag() {
            Some(groups) => groups.get(tag).map_or(SleepState::Awake, Group::state),
            None => SleepState::Asleep,
        }
    }

    /// Returns the usage of all tags. Not one consistent snapshot: tags are read one by one.
    pub fn usage(&self) -> SleepUsage {
        let mut usage = SleepUsage::default();
        self.core.groups().iter().for_each(|(_, group)| usage += group.usage());
        usage
    }

    /// Returns the usage of one tag.
    pub fn usage_of(&self, tag: &str) -> SleepUsage {
        let groups = self.core.groups_by_tag();
        groups.and_then(|groups| groups.get(tag).map(Group::usage)).unwrap_or_default()
    }

    /// Releases free memory of all awake tags to the device. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`DeviceArena::release`].
    pub fn trim(&self) -> Result<u64, Error> {
        fork::check()?;
        self.core.groups().iter().try_fold(0, |sum, (_, group)| Ok(sum + group.trim()?))
    }
}

impl<B: Backend> SleeperCore<B> {
    /// `None` in a forked child, where the lock may be held for ever.
    fn groups_by_tag(&self) -> Option<MutexGuard<'_, BTreeMap<Arc<str>, Group<B>>>> {
        (!fork::is_child()).then(|| self.groups.lock())
    }

    /// All groups, with their tags.
    pub(super) fn groups(&self) -> Vec<(Arc<str>, Group<B>)> {
        let listed = |(tag, group): (&Arc<str>, &Group<B>)| (Arc::clone(tag), group.clone());
        self.groups_by_tag().map_or_else(Vec::new, |groups| groups.iter().map(listed).collect())
    }

    /// The group of a tag, made if there is none.
    fn group(&self, tag: &Arc<str>) -> Result<Group<B>, Error> {
        let mut groups = self.groups.lock();
        if let Some(group) = groups.get(tag) {
            return Ok(group.clone());
        }
        let group = match &self.places {
            Places::Loose(pool) => Group::Loose(Loose::new(pool)),
            Places::Addresses { allowance, chunk_bytes } => {
                let arena = DeviceArena::builder(&self.device).growing().memory(self.kind);
                let arena = arena.limit(self.limit.unwrap_or(0)).piece_bytes(*chunk_bytes);
                Group::Arena(arena.within(allowance).build()?)
            }
        };
        groups.insert(Arc::clone(tag), group.clone());
        Ok(group)
    }

    /// Releases free memory of all tags when memory is insufficient. Returns the number of bytes.
    pub(super) fn relieve(&self) -> u64 {
        let groups = self.groups();
        let freed = groups.iter().map(|(tag, group)| {
            group.trim().unwrap_or_else(|error| {
                log::warn!("tag {tag}: free memory is not given back: {error}");
                0
            })
        });
        freed.sum()
    }
}
