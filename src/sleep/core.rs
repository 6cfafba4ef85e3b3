//! The state that a sleeper's handles and buffers share: the groups of all tags.

use super::callbacks::Callbacks;
use super::group::Group;
use super::separate_blocks::SeparateBlocks;
use super::{Offload, SleepUsage};
use crate::arena::{Allowance, DeviceArena};
use crate::error::{Error, Owner};
use crate::pool::Pool;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use vrampool_backend::{Backend, MemoryKind, fork, logging};

/// State that a sleeper's handles and blocks share.
#[derive(Debug)]
pub(super) struct SleeperCore<B: Backend> {
    pub(super) id: u64,
    pub(super) device: B,
    pub(super) kind: MemoryKind,
    pub(super) limit: Option<u64>,
    pub(super) offload: Offload,
    pub(super) places: Places<B>,
    pub(super) groups: Mutex<BTreeMap<Arc<str>, Group<B>>>,
    /// One sleep or wake at a time.
    pub(super) changing: Mutex<()>,
    pub(super) callbacks: Callbacks,
}

/// The location of blocks.
#[derive(Debug)]
pub(super) enum Places<B: Backend> {
    /// One growing arena per tag.
    Addresses { allowance: Allowance, chunk_bytes: u64 },
    /// Separate allocations.
    Separate(Pool<B>),
}

impl<B: Backend> SleeperCore<B> {
    /// `None` in a forked child, where the lock may be held for ever.
    pub(super) fn groups_by_tag(&self) -> Option<MutexGuard<'_, BTreeMap<Arc<str>, Group<B>>>> {
        (!fork::is_child()).then(|| self.groups.lock())
    }

    /// All groups, with their tags.
    pub(super) fn groups(&self) -> Vec<(Arc<str>, Group<B>)> {
        let listed = |(tag, group): (&Arc<str>, &Group<B>)| (Arc::clone(tag), group.clone());
        self.groups_by_tag().map_or_else(Vec::new, |groups| groups.iter().map(listed).collect())
    }

    /// The group of a tag, made if there is none.
    pub(super) fn group(&self, tag: &Arc<str>) -> Result<Group<B>, Error> {
        let mut groups = self.groups.lock();
        if let Some(group) = groups.get(tag) {
            return Ok(group.clone());
        }
        let group = match &self.places {
            Places::Separate(pool) => Group::Separate(SeparateBlocks::new(pool)),
            Places::Addresses { allowance, chunk_bytes } => {
                let arena = DeviceArena::builder(&self.device).growing().memory(self.kind);
                let arena = arena.limit(self.limit).piece_bytes(*chunk_bytes);
                Group::Arena(arena.within(allowance).build()?)
            }
        };
        groups.insert(Arc::clone(tag), group.clone());
        Ok(group)
    }

    /// Sets the figures of all tags in a lack of memory.
    pub(super) fn explain(&self, mut error: Error) -> Error {
        if let Error::OutOfMemory(error) = &mut error {
            let usage = self.usage();
            error.live_bytes = usage.live_bytes;
            error.held_bytes = usage.mapped_bytes.max(usage.live_bytes);
            error.idle_bytes = error.held_bytes - error.live_bytes;
            error.owner = Owner::Sleeper;
        }
        error
    }

    pub(super) fn usage(&self) -> SleepUsage {
        let mut usage = SleepUsage::default();
        self.groups().iter().for_each(|(_, group)| usage += group.usage());
        usage
    }

    /// Releases free memory of all tags when memory is insufficient. Returns the number of bytes.
    pub(super) fn relieve(&self) -> u64 {
        let groups = self.groups();
        let freed = groups.iter().map(|(tag, group)| {
            group.trim().unwrap_or_else(|error| {
                logging::warn!("tag {tag}: free memory is not given back: {error}");
                0
            })
        });
        freed.sum()
    }
}
