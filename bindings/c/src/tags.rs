//! Tags: their pools.

use crate::failure::{Failure, Status};
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool::Pool;
use vrampool::any::AnyDevice;
use vrampool_sleep::SleepArena;

/// The pool of a tag.
#[derive(Debug)]
pub(crate) struct Tagged {
    pub(crate) tag: Box<str>,
    pub(crate) pool: Pool<AnyDevice>,
    /// Nothing is allocated then; what is freed is idle until it wakes.
    pub(crate) asleep: AtomicBool,
    /// Its arena, if memory is virtual.
    pub(crate) arena: Option<SleepArena<AnyDevice>>,
}

impl Tagged {
    pub(crate) fn new(tag: &str, pool: Pool<AnyDevice>) -> Self {
        let arena = pool.arena().filter(|arena| arena.is_growing()).cloned().map(SleepArena::new);
        Self { tag: tag.into(), pool, asleep: AtomicBool::new(false), arena }
    }

    /// Releases its pool's idle memory; a failure is logged.
    pub(crate) fn trim(&self) {
        self.trim_to(0);
    }

    /// Releases idle memory of its pool beyond `idle_bytes`, and returns the released bytes. A failure is
    /// logged.
    pub(crate) fn trim_to(&self, idle_bytes: u64) -> u64 {
        self.pool.trim_to(idle_bytes).unwrap_or_else(|error| {
            log::warn!("tag {}: idle memory was not released: {error}", self.tag);
            0
        })
    }

    pub(crate) fn is_asleep(&self) -> bool {
        // Relaxed: who uses memory while another thread puts it to sleep is wrong whatever it reads here.
        self.asleep.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`Status::ASLEEP`] for a request of `bytes` while the tag is asleep.
    #[inline(always)]
    pub(crate) fn check_awake(&self, bytes: u64) -> Result<(), Failure> {
        if self.is_asleep() { Err(self.asleep(bytes)) } else { Ok(()) }
    }

    #[cold]
    fn asleep(&self, bytes: u64) -> Failure {
        let tag = &self.tag;
        Failure::new(
            Status::ASLEEP,
            format!("{bytes} bytes were requested under the tag {tag}, which is asleep; wake it first"),
        )
    }
}
