//! Copies and fills of ranges of allocations.

use super::allocation::Span;
use super::context::{Context, RawEvent};
use super::queue::Queue;
use std::ffi::c_void;
use vrampool_backend::BackendError;

impl Context {
    /// Copies as many bytes as both have. They must not overlap, as the standard has it.
    pub(crate) fn copy(&self, queue: &Queue, source: Span<'_>, to: Span<'_>) -> Result<(), BackendError> {
        let bytes = source.bytes.min(to.bytes);
        if bytes == 0 {
            return Ok(());
        }
        let (none, null) = (std::ptr::null(), std::ptr::null_mut());
        if let (Some(from), Some(at), Some(library)) = (source.shared(), to.shared(), &self.library().shared)
        {
            return self.enqueue("clEnqueueSVMMemcpy", queue, |queue| {
                // SAFETY: both ranges lie in shared memory (`Span::new` checked them), which is freed only
                // behind the work of the streams that used it.
                unsafe { (library.clEnqueueSVMMemcpy)(queue, 0, at, from, bytes, 0, none, null) }
            });
        }
        if self.copy_mapped(queue, source, to, bytes)? {
            return Ok(());
        }
        let ((from, start), (at, offset)) = ((source.buffer(), source.offset), (to.buffer(), to.offset));
        let core = &self.library().core;
        self.enqueue("clEnqueueCopyBuffer", queue, |queue| {
            // SAFETY: both ranges lie in buffers (`Span::new` checked them), of which the driver keeps a
            // count.
            unsafe { (core.clEnqueueCopyBuffer)(queue, from, at, start, offset, bytes, 0, none, null) }
        })
    }

    pub(crate) fn fill(&self, queue: &Queue, to: Span<'_>, value: u8) -> Result<(), BackendError> {
        if to.bytes == 0 {
            return Ok(());
        }
        self.order_after_unmap(queue, to.allocation)?;
        let (none, null, pattern) = (std::ptr::null(), std::ptr::null_mut(), (&raw const value).cast());
        if let (Some(at), Some(library)) = (to.shared(), &self.library().shared) {
            return self.enqueue("clEnqueueSVMMemFill", queue, |queue| {
                // SAFETY: as in `copy`; the pattern is one byte, which the call takes a copy of.
                unsafe { (library.clEnqueueSVMMemFill)(queue, at, pattern, 1, to.bytes, 0, none, null) }
            });
        }
        let (buffer, offset, bytes, core) = (to.buffer(), to.offset, to.bytes, &self.library().core);
        self.enqueue("clEnqueueFillBuffer", queue, |queue| {
            // SAFETY: as in `copy`; the pattern is one byte, which the call takes a copy of.
            unsafe { (core.clEnqueueFillBuffer)(queue, buffer, pattern, 1, offset, bytes, 0, none, null) }
        })
    }

    /// Copies from the host and waits until the bytes were read.
    pub(crate) fn upload(&self, queue: &Queue, source: &[u8], to: Span<'_>) -> Result<(), BackendError> {
        let bytes = source.len().min(to.bytes);
        if bytes == 0 {
            return Ok(());
        }
        self.order_after_unmap(queue, to.allocation)?;
        let (none, from) = (std::ptr::null(), source.as_ptr().cast::<c_void>());
        let (buffer, offset, core) = (to.buffer(), to.offset, &self.library().core);
        let copied = self.enqueue_for_event("clEnqueueWriteBuffer", queue, |queue, event| {
            match (to.shared(), &self.library().shared) {
                // SAFETY: the range was checked by `Span::new`, and is freed behind this stream's work. The
                // host's bytes are borrowed for this call, which does not return before the copy is done: it
                // waits below.
                (Some(at), Some(library)) => unsafe {
                    (library.clEnqueueSVMMemcpy)(queue, 0, at, from, bytes, 0, none, event)
                },
                // SAFETY: as above; the driver keeps a count of the buffer.
                _ => unsafe {
                    (core.clEnqueueWriteBuffer)(queue, buffer, 0, offset, bytes, from, 0, none, event)
                },
            }
        });
        self.finished(queue, copied)
    }

    /// Copies to the host and waits until the bytes are there.
    pub(crate) fn download(
        &self,
        queue: &Queue,
        source: Span<'_>,
        to: &mut [u8],
    ) -> Result<(), BackendError> {
        let bytes = source.bytes.min(to.len());
        if bytes == 0 {
            return self.synchronize(queue);
        }
        self.order_after_unmap(queue, source.allocation)?;
        let (none, at) = (std::ptr::null(), to.as_mut_ptr().cast::<c_void>());
        let (buffer, offset, core) = (source.buffer(), source.offset, &self.library().core);
        let copied = self.enqueue_for_event("clEnqueueReadBuffer", queue, |queue, event| {
            match (source.shared(), &self.library().shared) {
                // SAFETY: as in `upload`, with the roles exchanged.
                (Some(from), Some(library)) => unsafe {
                    (library.clEnqueueSVMMemcpy)(queue, 0, at, from, bytes, 0, none, event)
                },
                // SAFETY: as in `upload`, with the roles exchanged.
                _ => unsafe {
                    (core.clEnqueueReadBuffer)(queue, buffer, 0, offset, bytes, at, 0, none, event)
                },
            }
        });
        self.finished(queue, copied)
    }

    /// Waits for a copy to or from borrowed memory of the host. Where that fails, for all work of the queue,
    /// so that the borrow is over: a queue that cannot finish is one of a context that does no work any more.
    fn finished(&self, queue: &Queue, copied: Result<RawEvent, BackendError>) -> Result<(), BackendError> {
        let done = copied.and_then(|copied| copied.wait_plainly());
        if done.is_err() {
            let _ = self.synchronize(queue);
        }
        self.judged(done)
    }
}
