//! The state that all handles of a stream share.

use crate::driver::{Context, Cover, Queue, QueueName};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, OnceLock, Weak};
use vrampool_backend::{BackendError, StreamId, fork};

/// The common state of the handles to a stream: one for each stream, however often it is wrapped.
#[derive(Debug)]
pub(crate) struct StreamCore {
    id: StreamId,
    /// The driver's number of it, once it was asked for: not while the stream is captured.
    number: OnceLock<u64>,
    queue: Queue,
    /// Where the stream was wrapped by its raw handle first: the value that owns it, once that is known.
    owner: OnceLock<Arc<cudarc::driver::CudaStream>>,
    /// After the stream, whose dropping would make its context current for good, and before the context
    /// itself.
    cover: Cover,
    /// Where it is known.
    table: Arc<StreamTable>,
    context: Context,
}

/// The streams of a device that some code has a handle to.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    streams: Mutex<HashMap<QueueName, Weak<StreamCore>>>,
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if fork::is_forked() {
            // The stream is the parent's: it is never dropped here.
            return mem::forget((Arc::clone(self.queue.cudarc()), self.owner.get().map(Arc::clone)));
        }
        self.cover = Cover::with(&self.context);
        let mut streams = self.table.streams.lock();
        // Some code may have wrapped the stream again in between.
        let name = self.queue.name();
        if streams.get(&name).is_some_and(|stream| stream.strong_count() == 0) {
            streams.remove(&name);
        }
    }
}

impl StreamCore {
    /// Finds or makes the state of `stream` of `context` in `table`.
    pub(crate) fn of(
        table: &Arc<StreamTable>,
        context: &Context,
        stream: Arc<cudarc::driver::CudaStream>,
    ) -> Result<Arc<Self>, BackendError> {
        let queue = Queue::new(stream);
        let (name, number) = (queue.name(), context.enter()?.number_of(&queue)?);
        // Outlives the lock, which its destructor takes.
        let known;
        let mut streams = table.streams.lock();
        known = streams.get(&name).and_then(Weak::upgrade);
        let same = known.as_ref().filter(|core| !core.queue.is_retired() && core.is_still(number));
        if let Some(core) = same {
            // Either this one is kept too, or an earlier one is, and one is enough.
            let _ = core.owner.set(Arc::clone(queue.cudarc()));
            return Ok(Arc::clone(core));
        }
        let core = Arc::new(Self {
            id: StreamId::next(),
            number: number.map(OnceLock::from).unwrap_or_default(),
            queue,
            owner: OnceLock::new(),
            cover: Cover::default(),
            table: Arc::clone(table),
            context: context.clone(),
        });
        streams.insert(name, Arc::downgrade(&core));
        Ok(core)
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether it is the stream that has its handle now. `number` is that one's, unless it is captured.
    fn is_still(&self, number: Option<u64>) -> bool {
        number.is_none_or(|number| *self.number.get_or_init(|| number) == number)
    }
}
