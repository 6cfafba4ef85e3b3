//! The state that all handles of a stream share, and the ends of its work.

use crate::driver::{Context, Handle, Queue, RawEvent};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use vrampool_backend::{BackendError, StreamId, fork};

/// The common state of the handles to a stream: one for each queue, however often it is wrapped.
#[derive(Debug)]
pub(crate) struct StreamCore {
    id: StreamId,
    queue: Queue,
    end: Arc<End>,
    /// Where it is known.
    table: Arc<StreamTable>,
    context: Context,
}

/// The end of a stream's work, marked when the last handle is dropped.
#[derive(Debug, Default)]
pub(crate) struct End(OnceLock<Result<RawEvent, BackendError>>);

/// A stream on which memory was used: its work so far, and nothing that keeps the queue.
#[derive(Debug)]
pub(crate) struct User {
    id: StreamId,
    stream: Weak<StreamCore>,
    end: Arc<End>,
}

/// The end of work that uses memory.
#[derive(Debug)]
pub(crate) enum StreamPoint {
    /// Of a stream that is there.
    Now(RawEvent),
    /// Of one that was dropped.
    Last(Arc<End>),
}

/// The streams of a device that some code has a handle to, by the queue's handle, which no other queue has while
/// it lives.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    streams: Mutex<HashMap<Handle, Weak<StreamCore>>>,
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if fork::is_forked() {
            return;
        }
        // Only memory that knows the stream asks for it, and nothing comes to know it from here on.
        if Arc::strong_count(&self.end) > 1 {
            let _ = self.end.0.set(self.context.record(&self.queue));
        }
        let mut streams = self.table.streams.lock();
        // Some code may have wrapped the queue again in between.
        if streams.get(&self.queue.handle()).is_some_and(|stream| stream.strong_count() == 0) {
            streams.remove(&self.queue.handle());
        }
    }
}

impl StreamCore {
    /// Finds or makes the state of `queue` of `context` in `table`.
    pub(crate) fn of(table: &Arc<StreamTable>, context: &Context, queue: Queue) -> Arc<Self> {
        // Outlives the lock, which its destructor takes.
        let known;
        let mut streams = table.streams.lock();
        known = streams.get(&queue.handle()).and_then(Weak::upgrade);
        if let Some(known) = known {
            return known;
        }
        let handle = queue.handle();
        let (end, table, context) = (Arc::default(), Arc::clone(table), context.clone());
        let core = Arc::new(Self { id: StreamId::next(), queue, end, table, context });
        streams.insert(handle, Arc::downgrade(&core));
        core
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn as_user(self: &Arc<Self>) -> User {
        User { id: self.id, stream: Arc::downgrade(self), end: Arc::clone(&self.end) }
    }
}

impl User {
    pub(crate) fn is(&self, stream: &StreamCore) -> bool {
        self.id == stream.id
    }

    /// Marks the end of its work so far.
    pub(crate) fn point(&self) -> Result<StreamPoint, BackendError> {
        match self.stream.upgrade() {
            Some(stream) => Ok(StreamPoint::Now(stream.context.record(&stream.queue)?)),
            None => match self.end.0.wait() {
                Ok(_) => Ok(StreamPoint::Last(Arc::clone(&self.end))),
                Err(error) => Err(error.clone()),
            },
        }
    }

    /// Whether the stream was dropped and its work is done.
    pub(crate) fn is_done(&self) -> bool {
        // Work that failed is over. Where its end could not be marked nothing is known of it.
        let is_over = |end: &RawEvent| end.is_complete().unwrap_or(true);
        self.stream.strong_count() == 0 && matches!(self.end.0.get(), Some(Ok(end)) if is_over(end))
    }
}

impl StreamPoint {
    pub(crate) fn event(&self) -> Option<&RawEvent> {
        match self {
            Self::Now(event) => Some(event),
            Self::Last(end) => end.0.get().and_then(|end| end.as_ref().ok()),
        }
    }
}
