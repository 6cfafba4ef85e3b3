//! The last use of a pool's block, read without a lock: its writer, the stream that it is ready on, and when it was
//! freed. Its users are in its [uses](crate::streams::uses), in an arena those of its slot.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool_backend::StreamId;

// Of a block: the model does not step through its atomics.
#[derive(Debug)]
pub(crate) struct LastUse {
    /// The stream that allocated or wrote it last.
    writer: StreamId,
    /// The stream on which it needs no wait: the writer, ordered behind all earlier users. 0 after another stream has
    /// read it.
    ready_on: AtomicU64,
    /// A tick in which it was idle: markers of that tick or later follow its last use. 0 if unknown.
    freed: AtomicU64,
}

impl LastUse {
    pub(crate) fn new(writer: StreamId) -> Self {
        Self { writer, ready_on: AtomicU64::new(writer.get()), freed: AtomicU64::new(0) }
    }

    #[inline(always)]
    pub(crate) fn writer(&self) -> StreamId {
        self.writer
    }

    /// Whether work on `stream` needs no wait.
    #[inline(always)]
    pub(crate) fn is_ready_on(&self, stream: StreamId) -> bool {
        // Relaxed, here and below: only the exclusive owner of the block calls this. Passing on ownership orders its
        // stores before.
        self.ready_on.load(Relaxed) == stream.get()
    }

    /// From now on `stream` is the writer, ordered behind all earlier users.
    #[inline]
    pub(crate) fn written_on(&mut self, stream: StreamId) {
        self.writer = stream;
        *self.ready_on.get_mut() = stream.get();
    }

    /// From now on no stream may use it without a wait, unless `user` is its writer.
    pub(crate) fn used_on(&self, user: StreamId) {
        if user != self.writer {
            self.share();
        }
    }

    /// From now on no stream may use it without a wait.
    pub(crate) fn share(&self) {
        self.ready_on.store(0, Relaxed);
    }

    /// The tick of its free, or one in which it was idle; 0 if neither is known.
    #[inline]
    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_freed(&mut self, tick: u64) {
        *self.freed.get_mut() = tick;
    }

    /// Records a tick in which it is idle, unless an earlier one is known.
    pub(crate) fn note_idle(&self, tick: u64) {
        if self.freed() == 0 {
            self.freed.store(tick, Relaxed);
        }
    }
}
