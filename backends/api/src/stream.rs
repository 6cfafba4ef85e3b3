//! Ordered queues of device work, and points in them.

use crate::{BackendError, DeviceId};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies one stream for the life of the process: never used again, not even for another device or
/// backend.
///
/// A driver may use a raw handle again after its stream is destroyed; an id cannot be taken for another
/// stream's.
///
/// ```
/// # use vrampool_backend::StreamId;
/// assert_ne!(StreamId::next(), StreamId::next());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u64);

impl StreamId {
    /// A new id, for a backend that wraps a stream.
    #[must_use]
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only distinctness matters, nothing is published with it.
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The id as a number, never 0.
    #[inline]
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

/// Identifies one capture of streams into a graph. Streams of one capture may wait for each other; a wait
/// between two captures would merge their graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CaptureId(u64);

impl CaptureId {
    /// Of a backend that reports whether a stream is captured, and not in which capture: all such captures
    /// pass for one.
    pub const UNKNOWN: Self = Self(0);

    /// The capture that the driver names `id`, which it uses for no other while the process runs.
    #[must_use]
    pub fn new(id: u64) -> Self {
        Self(id)
    }
}

/// An ordered queue of device work. A clone is another handle to the same queue.
///
/// The queue lives at least as long as any handle to it: idle memory keeps a handle to the stream that used
/// it last.
///
/// ```
/// use vrampool_backend::{DeviceId, Stream, StreamId};
/// /// A queue whose work is done when a call returns.
/// #[derive(Debug, Clone)]
/// struct Immediate(StreamId);
/// impl Stream for Immediate {
///     fn id(&self) -> StreamId {
///         self.0
///     }
///     fn device(&self) -> DeviceId {
///         DeviceId::new("immediate", 0)
///     }
/// }
/// let stream = Immediate(StreamId::next());
/// assert_eq!(stream.clone().id(), stream.id());
/// ```
pub trait Stream: Clone + fmt::Debug + Send + Sync + 'static {
    /// The same for all clones, and for nothing else.
    fn id(&self) -> StreamId;

    /// The device whose work it orders.
    fn device(&self) -> DeviceId;

    /// Whether its owner let it go: all its work is done, and there is never more.
    #[inline]
    fn is_retired(&self) -> bool {
        false
    }
}

/// A point in a stream.
///
/// ```
/// use vrampool_backend::{Backend, BackendError, Event};
/// /// Whether all work enqueued on `stream` so far is done.
/// fn is_idle<B: Backend>(device: &B, stream: &B::Stream) -> Result<bool, BackendError> {
///     device.record(stream)?.is_complete()
/// }
/// ```
pub trait Event: fmt::Debug + Send + Sync + 'static {
    /// Whether all work before the point is done. Never blocks.
    ///
    /// # Errors
    /// Errors of the driver; on a lost device [`BackendError::DeviceLost`].
    fn is_complete(&self) -> Result<bool, BackendError>;
}
