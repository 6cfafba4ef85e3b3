//! The recorder of a pool, if it has one, and the ways of a request and of a buffer back that it sees. Without the feature
//! `trace` no pool has one.
//!
//! The quick ways of a pool that is recorded find no lane: so what is not recorded costs nothing for this. Behind them, and
//! behind the recorder, the magazines are as quick as ever.

use crate::block::Block;
use crate::lanes::Lanes;
#[cfg(feature = "trace")]
use crate::lanes::{self, NO_LANE};
#[cfg(feature = "trace")]
use crate::magazine;
use crate::shared::Shared;
use crate::size_class::SizeClasses;
#[cfg(feature = "trace")]
use crate::trace::Recorder;
use vrampool_backend::{Hooks, StreamId};

/// What a pool records to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records(#[cfg(feature = "trace")] Option<Recording>);

/// The recorder, and the lanes that the pool would have without it.
#[cfg(feature = "trace")]
#[derive(Debug, Clone)]
struct Recording {
    recorder: Recorder,
    /// None where there are hooks, which see every request.
    lanes: Option<Lanes>,
}

#[cfg(feature = "trace")]
impl Records {
    pub(crate) fn to(recorder: &Recorder) -> Self {
        Self(Some(Recording { recorder: recorder.clone(), lanes: None }))
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The lanes of a pool with it, and with it those for its own quick ways.
    pub(crate) fn lanes(self, hooks: &Hooks, classes: SizeClasses, largest: u64) -> (Lanes, Self) {
        match self.0 {
            _ if !hooks.is_empty() => (Lanes::watched(largest), self),
            None => (Lanes::new(classes, largest), self),
            Some(Recording { recorder, .. }) => {
                let lanes = Some(Lanes::new(classes, largest));
                (Lanes::recorded(largest), Self(Some(Recording { recorder, lanes })))
            }
        }
    }

    /// As [`magazine::take`], of a pool that is recorded.
    #[inline(always)]
    pub(crate) fn take(&self, pool: &Shared, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        if self.is_empty() { None } else { self.take_recorded(pool, requested, stream) }
    }

    #[inline(never)]
    fn take_recorded(&self, pool: &Shared, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        let Recording { recorder, lanes } = self.0.as_ref()?;
        let lane = lanes.as_ref()?.of_request(requested)?;
        let mut block = magazine::take_from(pool, lane, requested, stream)?;
        block.recorded = recorder.allocated(requested, stream);
        block.recorded_lane = lane;
        Some(block)
    }

    /// A request was served by `block`.
    #[inline(always)]
    pub(crate) fn request(&self, block: &mut Block) {
        if !self.is_empty() {
            self.request_recorded(block);
        }
    }

    #[cold]
    #[inline(never)]
    fn request_recorded(&self, block: &mut Block) {
        if let Some(Recording { recorder, lanes }) = &self.0 {
            let is_kept = block.pool.has_magazine_for(block.key);
            block.recorded_lane = match lanes {
                Some(lanes) if lanes.are_unshared() && is_kept => lanes::number(block.key.class),
                _ => NO_LANE,
            };
            block.recorded = recorder.allocated(block.requested, block.stream);
        }
    }

    /// The block comes back. Answers it if it did not find a place in this thread's magazines.
    #[inline(always)]
    pub(crate) fn free(block: Box<Block>) -> Option<Box<Block>> {
        if block.pool.records.is_empty() { Some(block) } else { Self::free_recorded(block) }
    }

    #[inline(never)]
    fn free_recorded(mut block: Box<Block>) -> Option<Box<Block>> {
        // Before anybody else may get it.
        if let (number @ 1.., Some(Recording { recorder, .. })) = (block.recorded, &block.pool.records.0) {
            recorder.freed(number, block.stream);
        }
        block.recorded = 0;
        match block.recorded_lane {
            NO_LANE => Some(block),
            lane => magazine::put_into(lane, block),
        }
    }
}

#[cfg(not(feature = "trace"))]
impl Records {
    pub(crate) fn lanes(self, hooks: &Hooks, classes: SizeClasses, largest: u64) -> (Lanes, Self) {
        match hooks.is_empty() {
            true => (Lanes::new(classes, largest), self),
            false => (Lanes::watched(largest), self),
        }
    }

    pub(crate) fn take(&self, _: &Shared, _: u64, _: StreamId) -> Option<Box<Block>> {
        None
    }

    pub(crate) fn request(&self, _: &mut Block) {}

    pub(crate) fn free(block: Box<Block>) -> Option<Box<Block>> {
        Some(block)
    }
}
