//! Streams of the driver.

use super::context::Current;
use crate::error::NOT_READY;
use cudarc::driver::{CudaStream, sys};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use vrampool_backend::BackendError;

/// The handles that stand for the default streams: the context's one (0 or 1), and each thread's own (2).
pub(super) const LEGACY_HANDLE: usize = 1;
pub(super) const PER_THREAD_HANDLE: usize = 2;

/// A stream, kept alive, with the handle for the driver's calls.
#[derive(Debug)]
pub(crate) struct Queue {
    stream: Arc<CudaStream>,
    /// The thread of a per-thread default stream.
    thread: Option<ThreadId>,
    /// Whether its owner is about to destroy it. Its work is complete, and its handle must not be used any more,
    /// because the driver crashes on one that it has destroyed.
    retired: AtomicBool,
}

/// The name of a [`Queue`]; another stream may have it once this one is destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct QueueName {
    handle: usize,
    thread: Option<ThreadId>,
}

impl Queue {
    pub(crate) fn new(stream: Arc<CudaStream>) -> Self {
        let per_thread = stream.cu_stream() as usize == PER_THREAD_HANDLE;
        let thread = per_thread.then(|| std::thread::current().id());
        Self { stream, thread, retired: AtomicBool::new(false) }
    }

    pub(crate) fn cudarc(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The name, unique among existing streams: the handle, and the thread of a per-thread default stream.
    pub(crate) fn name(&self) -> QueueName {
        let handle = self.stream.cu_stream() as usize;
        // Both handles mean the context's default stream.
        QueueName { handle: if handle == LEGACY_HANDLE { 0 } else { handle }, thread: self.thread }
    }

    /// Whether its handle means another stream on this thread.
    pub(crate) fn is_of_another_thread(&self) -> bool {
        self.thread.is_some_and(|thread| thread != std::thread::current().id())
    }

    pub(crate) fn retire(&self) {
        // Release: pairs with the acquire in `is_retired`; the caller destroys the stream after this store.
        self.retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    pub(crate) fn check_not_retired(&self) -> Result<(), BackendError> {
        match self.is_retired() {
            true => Err(BackendError::invalid("stream", "it was retired: its owner destroys it")),
            false => Ok(()),
        }
    }

    /// Returns the stream's handle, or an error once the stream is retired. On another thread than that of a per-thread
    /// default stream, returns the context's default stream, which is ordered with all blocking streams.
    pub(super) fn handle(&self) -> Result<sys::CUstream, BackendError> {
        self.check_not_retired()?;
        if self.is_of_another_thread() {
            return Ok(LEGACY_HANDLE as sys::CUstream);
        }
        Ok(self.stream.cu_stream())
    }
}

impl Current<'_> {
    pub(crate) fn synchronize(&self, queue: &Queue) -> Result<(), BackendError> {
        let stream = queue.handle()?;
        // Without the relaxed mode, a capture of another stream forbids the call, and fails because of it.
        let _relaxed = self.relaxed();
        // SAFETY: the queue keeps its stream alive.
        let code = unsafe { (self.context.library.cuStreamSynchronize)(stream) };
        self.context.library.check("cuStreamSynchronize", code)
    }

    /// Whether work enqueued now would go into a graph instead of being done.
    pub(crate) fn is_capturing(&self, queue: &Queue) -> Result<bool, BackendError> {
        let (stream, mut status) = (queue.handle()?, 0);
        // SAFETY: the queue keeps its stream alive; the call writes one number to `status`.
        let code = unsafe { (self.context.library.cuStreamIsCapturing)(stream, &raw mut status) };
        self.context.library.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// Whether all work of a stream is complete; `false` while it is captured, when the query would fail the
    /// capture.
    pub(crate) fn is_idle(&self, queue: &Queue) -> Result<bool, BackendError> {
        if self.is_capturing(queue)? {
            return Ok(false);
        }
        // Without the relaxed mode, a capture of another stream forbids the call, and fails because of it.
        let _relaxed = self.relaxed();
        // SAFETY: the queue keeps its stream alive.
        let code = unsafe { (self.context.library.cuStreamQuery)(queue.handle()?) };
        if code == NOT_READY {
            return Ok(false);
        }
        self.context.library.check("cuStreamQuery", code).map(|()| true)
    }

    /// The driver's number of the capture that a stream is a part of, which it uses for no other; 0 of one
    /// that failed.
    pub(crate) fn capture_of(&self, queue: &Queue) -> Result<Option<u64>, BackendError> {
        let (stream, mut status, mut id) = (queue.handle()?, 0, 0);
        let (graph, nodes, count) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let ask = self.context.library.cuStreamGetCaptureInfo_v2;
        // SAFETY: the queue keeps its stream alive; the call writes one number each to `status` and `id`, and
        // what is not wanted of the graph has null in its place, which the driver's header allows.
        let code = unsafe { ask(stream, &raw mut status, &raw mut id, graph, nodes, count) };
        self.context.library.check("cuStreamGetCaptureInfo", code)?;
        Ok((status != 0).then_some(id))
    }

    /// The driver's own number of a stream, which it never uses again. `None` while the stream is captured:
    /// asking for it would fail the capture.
    pub(crate) fn number_of(&self, queue: &Queue) -> Result<Option<u64>, BackendError> {
        let (stream, mut number) = (queue.handle()?, 0);
        // The context's default stream cannot be captured, and whether it is cannot be asked during a capture.
        if stream as usize > LEGACY_HANDLE && self.is_capturing(queue)? {
            return Ok(None);
        }
        let _relaxed = self.relaxed();
        // SAFETY: the queue keeps its stream alive; the call writes one number to `number`.
        let code = unsafe { (self.context.library.cuStreamGetId)(stream, &raw mut number) };
        self.context.library.check("cuStreamGetId", code)?;
        Ok(Some(number))
    }
}
