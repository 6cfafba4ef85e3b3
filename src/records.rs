//! The recorder of a pool, if it has one, and the ways of a request and of a buffer back that it sees. Without the feature
//! `trace` no pool has one.
//!
//! The quick ways of a pool that is recorded find no lane: so what is not recorded costs nothing for this. Behind them, and
//! behind the recorder, the magazines are as quick as ever.

use crate::block::Block;
use crate::lanes::Lanes;
#[cfg(feature = "trace")]
use crate::lanes::{self, NO_LANE};
use crate::shared::Shared;
use crate::size_class::SizeClasses;
#[cfg(feature = "trace")]
use crate::trace::Recorder;
#[cfg(feature = "trace")]
use crate::{last, magazine};
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

    /// Nothing is recorded.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
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
        let Recording { recorder, lanes } = self.0.as_ref()?;
        let lane = lanes.as_ref()?.of_request(requested)?;
        let mut block = last::take_here(pool, lane, requested, stream)?;
        block.recorded = recorder.allocated::<true>(requested, stream);
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
            block.recorded_lane = match lanes {
                Some(lanes) if lanes.are_unshared() && block.pool.has_magazine_for(block.key) => {
                    lanes::number(block.key.class)
                }
                _ => NO_LANE,
            };
            block.recorded = recorder.note_allocation(block.requested, block.stream);
        }
    }

    /// The block comes back, and does not say to which lane. Answers it if it did not find a place in this thread's magazines.
    #[inline(always)]
    pub(crate) fn put(block: Box<Block>) -> Option<Box<Block>> {
        if block.pool.records.is_empty() { Some(block) } else { Self::put_recorded(block) }
    }

    /// A function of its own: the registers that it needs are not for others to save.
    #[inline(never)]
    fn put_recorded(mut block: Box<Block>) -> Option<Box<Block>> {
        let Some(Recording { recorder, .. }) = &block.pool.records.0 else { return Some(block) };
        if block.recorded != 0 {
            // Before anybody else may get it.
            recorder.freed::<true>(block.recorded, block.stream);
            block.recorded = 0;
        }
        match block.recorded_lane {
            NO_LANE => Some(block),
            lane => magazine::put(lane, block),
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

    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn take(&self, _: &Shared, _: u64, _: StreamId) -> Option<Box<Block>> {
        None
    }

    pub(crate) fn request(&self, _: &mut Block) {}

    pub(crate) fn put(block: Box<Block>) -> Option<Box<Block>> {
        Some(block)
    }
}
