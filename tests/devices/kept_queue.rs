//! Counts the owners of streams' queues.

#[cfg(feature = "opencl")]
use opencl3::command_queue::{
    CL_QUEUE_REFERENCE_COUNT, get_command_queue_info, release_command_queue, retain_command_queue,
};
use vrampool::any::AnyStream;

/// A stream's queue, counted once more, so that its other owners can be counted. Nothing where the
/// driver does not count them.
#[derive(Debug)]
pub(crate) struct KeptQueue {
    #[cfg(feature = "opencl")]
    queue: Option<opencl3::types::cl_command_queue>,
}

impl KeptQueue {
    pub(crate) fn of(stream: &AnyStream) -> Self {
        let _ = stream;
        #[cfg(feature = "opencl")]
        let queue = match stream {
            AnyStream::OpenCl(stream) => {
                // SAFETY: the stream keeps the queue; the count is released once, by `drop`.
                unsafe { retain_command_queue(stream.queue()) }.expect("a queue");
                Some(stream.queue())
            }
            _ => None,
        };
        Self {
            #[cfg(feature = "opencl")]
            queue,
        }
    }

    /// Whether the queue has another owner.
    pub(crate) fn is_kept(&self) -> bool {
        #[cfg(feature = "opencl")]
        if let Some(queue) = self.queue {
            let count = get_command_queue_info(queue, CL_QUEUE_REFERENCE_COUNT).expect("a count");
            return u32::from(count) > 1;
        }
        false
    }
}

#[cfg(feature = "opencl")]
impl Drop for KeptQueue {
    fn drop(&mut self) {
        if let Some(queue) = self.queue {
            // SAFETY: the count that `of` took.
            let _ = unsafe { release_command_queue(queue) };
        }
    }
}
