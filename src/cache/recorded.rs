//! The recorded paths of allocation and release.
//!
//! The lock-free fast paths find no list in a recorded pool, so pools without a recorder have no overhead.
//! Behind the recorder the magazines work as usual.

use crate::cache::block::Block;
#[cfg(feature = "trace")]
use crate::cache::block::list_of;
use crate::cache::core::PoolCore;
#[cfg(feature = "trace")]
use crate::cache::magazine;
#[cfg(feature = "trace")]
use crate::cache::magazine::class_table::NO_LIST;
#[cfg(feature = "trace")]
use crate::cache::magazine::hot;
#[cfg(feature = "trace")]
use crate::cache::magazine::hot::Peek;
use crate::cache::pool_recorder::PoolRecorder;
#[cfg(feature = "trace")]
use crate::cache::pool_recorder::Recording;
#[cfg(feature = "trace")]
use crate::recorder::Recorder;
use vrampool_backend::StreamId;

/// The result of the fast path of a recorded pool.
#[cfg_attr(not(feature = "trace"), expect(dead_code, reason = "no pool is recorded"))]
pub(crate) enum Taken {
    Recorded(Box<Block>),
    /// The block is not recorded yet, because the recorder has other work to do first.
    Unrecorded(Box<Block>),
    /// A block may be in this list: in the hot slot, or elsewhere.
    NotYet {
        list: u8,
        is_hot: bool,
    },
    Nothing,
}

#[cfg(feature = "trace")]
impl PoolRecorder {
    #[inline(always)]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Takes the most recently released block of a recorded pool, if it serves the request.
    #[inline(always)]
    pub(crate) fn take(&self, pool: &PoolCore, requested: u64, stream: StreamId) -> Taken {
        let Some((number, list)) = self.list_of_request(requested) else { return Taken::Nothing };
        match hot::peek(pool, list, requested, stream) {
            Peek::Lent(Some(mut block)) => {
                block.recorded_list = list;
                match Recorder::note_allocation_of(number, requested, stream) {
                    Some(number) => {
                        block.recorded = number;
                        Taken::Recorded(block)
                    }
                    None => Taken::Unrecorded(block),
                }
            }
            Peek::Lent(None) => Taken::Nothing,
            Peek::Unproven => Taken::NotYet { list, is_hot: true },
            Peek::Elsewhere => Taken::NotYet { list, is_hot: false },
        }
    }

    #[inline(always)]
    fn list_of_request(&self, requested: u64) -> Option<(u64, u8)> {
        let Recording { number, lists, .. } = self.0.as_ref()?;
        Some((*number, lists.as_ref()?.of_request(requested)?))
    }

    /// Whether a list of a recorded pool was tried for a request.
    pub(crate) fn has_tried(&self, requested: u64) -> bool {
        self.list_of_request(requested).is_some_and(|(_, list)| list != NO_LIST)
    }

    /// As [`take`](Self::take), for a block of `list`. With `is_hot` only the hot slot is searched.
    #[inline(always)]
    pub(crate) fn take_of(
        list: u8,
        is_hot: bool,
        pool: &PoolCore,
        requested: u64,
        stream: StreamId,
    ) -> Option<Box<Block>> {
        let mut block = match is_hot {
            true => magazine::take_hot(pool, requested, stream),
            false => magazine::take_from_list(pool, list, requested, stream),
        }?;
        block.recorded_list = list;
        Self::record(&mut block);
        Some(block)
    }

    /// Records a request served by `block`, whose list is known.
    #[inline(always)]
    pub(crate) fn record(block: &mut Block) {
        let Some(Recording { number, recorder, .. }) = &block.pool.recorder.0 else { return };
        let (requested, stream) = (block.requested, block.stream);
        block.recorded = Recorder::note_allocation_of(*number, requested, stream)
            .unwrap_or_else(|| recorder.note_allocation(requested, stream));
    }

    /// Records a request served by `block`.
    #[inline(always)]
    pub(crate) fn request(&self, block: &mut Block) {
        if !self.is_none() {
            Self::request_recorded(block);
        }
    }

    #[cold]
    #[inline(never)]
    fn request_recorded(block: &mut Block) {
        block.recorded_list = list_of(&block.pool, block.key);
        Self::record(block);
    }

    /// Puts a returned block, whose list is hidden, in this thread's magazines, or returns it.
    #[inline(always)]
    pub(crate) fn put(block: Box<Block>) -> Option<Box<Block>> {
        if block.pool.recorder.is_none() { Some(block) } else { Self::put_recorded(block) }
    }

    /// A separate function whose calls are all in tail position, so that it need not save registers.
    #[inline(never)]
    fn put_recorded(block: Box<Block>) -> Option<Box<Block>> {
        let Some(Recording { number, .. }) = &block.pool.recorder.0 else { return Some(block) };
        // Recorded before another thread can get the block.
        if block.recorded != 0 && !Recorder::note_free_of(*number, block.recorded, block.stream) {
            return Self::put_in_time(block);
        }
        Self::put_noted(block)
    }

    /// As [`put_recorded`](Self::put_recorded), if the recorder has other work to do first.
    #[cold]
    #[inline(never)]
    fn put_in_time(block: Box<Block>) -> Option<Box<Block>> {
        if let Some(Recording { recorder, .. }) = &block.pool.recorder.0 {
            recorder.note_free(block.recorded, block.stream);
        }
        Self::put_noted(block)
    }

    #[inline(always)]
    fn put_noted(mut block: Box<Block>) -> Option<Box<Block>> {
        // Prevents recording the free again later on its path.
        block.recorded = 0;
        match block.recorded_list {
            NO_LIST => Some(block),
            list => magazine::put(list, block),
        }
    }
}

#[cfg(not(feature = "trace"))]
impl PoolRecorder {
    pub(crate) fn is_none(&self) -> bool {
        true
    }

    pub(crate) fn take(&self, _: &PoolCore, _: u64, _: StreamId) -> Taken {
        Taken::Nothing
    }

    pub(crate) fn take_of(_: u8, _: bool, _: &PoolCore, _: u64, _: StreamId) -> Option<Box<Block>> {
        None
    }

    pub(crate) fn has_tried(&self, _: u64) -> bool {
        false
    }

    pub(crate) fn record(_: &mut Block) {}

    pub(crate) fn request(&self, _: &mut Block) {}

    pub(crate) fn put(block: Box<Block>) -> Option<Box<Block>> {
        Some(block)
    }
}
