//! Tags: their pools.

use crate::failure::{Failure, Status};
use vrampool::Pool;
use vrampool::any::AnyDevice;
use vrampool_sleep::SleepArena;

/// The pool of a tag.
#[derive(Debug)]
pub(crate) struct Tagged {
    pub(crate) tag: Box<str>,
    pub(crate) pool: Pool<AnyDevice>,
    /// Its arena, if memory is virtual.
    pub(crate) arena: Option<SleepArena<AnyDevice>>,
}

impl Tagged {
    pub(crate) fn new(tag: &str, pool: Pool<AnyDevice>) -> Self {
        let arena = pool.arena().filter(|arena| arena.is_growing()).cloned().map(SleepArena::new);
        Self { tag: tag.into(), pool, arena }
    }

    /// Releases idle memory of its pool beyond `idle_bytes`, and returns the released bytes. A failure is
    /// logged.
    pub(crate) fn trim_to(&self, idle_bytes: u64) -> u64 {
        self.pool.trim_to(idle_bytes).unwrap_or_else(|error| {
            log::warn!("tag {}: idle memory was not released: {error}", self.tag);
            0
        })
    }

    /// The failure of a request of `bytes` bytes while it is asleep.
    #[cold]
    pub(crate) fn asleep(&self, bytes: u64) -> Failure {
        let tag = &self.tag;
        Failure::new(
            Status::ASLEEP,
            format!("{bytes} bytes were requested under the tag {tag}, which is asleep; wake it first"),
        )
    }

    /// Bytes that its pool holds; whole pages, if the pool has a separate arena.
    pub(crate) fn held_bytes(&self) -> u64 {
        let pages = self.arena.as_ref().map_or(0, |arena| arena.arena().reserved_bytes());
        pages.max(self.pool.own_stats().held_bytes)
    }

    /// Whether it is asleep, or falls asleep or wakes at this moment.
    pub(crate) fn is_asleep(&self) -> bool {
        self.arena.as_ref().is_some_and(|of| of.arena().attachment() != vrampool::arena::Attachment::Attached)
    }
}
