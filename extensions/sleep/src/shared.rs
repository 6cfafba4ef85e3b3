//! The state that a sleeper's handles and buffers share: the arenas of all tags.

use crate::arena::SleepArena;
use crate::callbacks::Callbacks;
use crate::error::Error;
use crate::offload::Offload;
use crate::tag::check_tags;
use crate::usage::{SleepCounts, SleepUsage};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use vrampool::arena::DeviceArena;
use vrampool::backend::{fork, logging};
use vrampool::errors::Owner;
use vrampool::{Backend, Ledger, MemoryKind};

/// State that a sleeper's handles and blocks share.
#[derive(Debug)]
pub(super) struct Shared<B: Backend> {
    pub(super) id: u64,
    /// In metrics.
    pub(super) name: String,
    pub(super) device: B,
    pub(super) kind: MemoryKind,
    pub(super) limit: Option<u64>,
    pub(super) offload: Offload,
    /// The limit of all tags together.
    pub(super) ledger: Ledger,
    pub(super) chunk_bytes: u64,
    /// One growing arena per tag.
    pub(super) arenas: Mutex<BTreeMap<Arc<str>, SleepArena<B>>>,
    /// One sleep or wake at a time.
    pub(super) changing: Mutex<()>,
    pub(super) callbacks: Callbacks,
    pub(super) counts: Mutex<SleepCounts>,
}

impl<B: Backend> Shared<B> {
    /// `None` in a forked child, where the lock may be held for ever.
    pub(super) fn arenas_by_tag(&self) -> Option<MutexGuard<'_, BTreeMap<Arc<str>, SleepArena<B>>>> {
        (!fork::is_child()).then(|| self.arenas.lock())
    }

    /// All arenas, with their tags.
    pub(super) fn arenas(&self) -> Vec<(Arc<str>, SleepArena<B>)> {
        let listed = |(tag, arena): (&Arc<str>, &SleepArena<B>)| (Arc::clone(tag), arena.clone());
        self.arenas_by_tag().map_or_else(Vec::new, |arenas| arenas.iter().map(listed).collect())
    }

    /// Checks that all these tags exist.
    pub(super) fn check_tags(&self, tags: &[&str]) -> Result<(), Error> {
        match self.arenas_by_tag() {
            Some(arenas) => check_tags(tags, arenas.keys().map(|tag| &**tag)),
            None => Ok(()),
        }
    }

    /// The arena of a tag, made if there is none.
    pub(super) fn arena_of(&self, tag: &Arc<str>) -> Result<SleepArena<B>, vrampool::Error> {
        let mut arenas = self.arenas.lock();
        if let Some(arena) = arenas.get(tag) {
            return Ok(arena.clone());
        }
        let arena = DeviceArena::builder(&self.device).growing().memory(self.kind);
        let arena = arena.limit(self.limit).piece_bytes(self.chunk_bytes).within(&self.ledger).build()?;
        let arena = SleepArena::new(arena);
        arenas.insert(Arc::clone(tag), arena.clone());
        Ok(arena)
    }

    /// Sets the figures of all tags in a lack of memory.
    pub(super) fn explain(&self, mut error: vrampool::Error) -> vrampool::Error {
        if let vrampool::Error::OutOfMemory(error) = &mut error {
            let usage = self.usage();
            error.live_bytes = usage.live_bytes;
            error.live_requested_bytes = usage.live_bytes;
            error.held_bytes = usage.mapped_bytes.max(usage.live_bytes);
            error.idle_bytes = error.held_bytes - error.live_bytes;
            error.owner = Owner::Arenas;
        }
        error
    }

    pub(super) fn usage(&self) -> SleepUsage {
        let mut usage = SleepUsage::default();
        self.arenas().iter().for_each(|(_, arena)| usage += SleepUsage::of(arena));
        usage
    }

    /// Releases free memory of all tags when memory is insufficient. Returns the number of bytes.
    pub(super) fn relieve(&self) -> u64 {
        let arenas = self.arenas();
        let freed = arenas.iter().map(|(tag, arena)| {
            arena.arena().release(0).unwrap_or_else(|error| {
                logging::warn!("tag {tag}: free memory is not released: {error}");
                0
            })
        });
        freed.sum()
    }
}
