//! Memory that was dropped and that wgpu keeps, because work may still use it.
//!
//! wgpu keeps a buffer until the commands that use it are submitted and done, and it is polled then. A list
//! that nothing submits would keep it for ever. So what is dropped counts as taken until the work before the
//! drop is done. When it is more than [`MOST`] the list is submitted, and an allocation waits until it is
//! less.

use crate::batch::Batch;
use crate::gpu::Gpu;
use parking_lot::Mutex;
use std::sync::Arc;
use vrampool_backend::spi::Grant;

/// Bytes that are kept so at most when memory is allocated, beyond what is live.
pub(crate) const MOST: u64 = 32 << 20;

/// How far the device has to be.
#[derive(Debug)]
pub(crate) enum Point {
    /// The end of this list.
    List(Arc<Batch>),
    /// The end of the submission of this number.
    Submission(u64),
}

#[derive(Debug, Default)]
pub(crate) struct Dropped {
    waiting: Mutex<Vec<Waiting>>,
}

/// Memory that was dropped before one point.
#[derive(Debug)]
struct Waiting {
    point: Point,
    bytes: u64,
    grants: Vec<Grant>,
}

impl Point {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(one), Self::List(other)) => Arc::ptr_eq(one, other),
            (Self::Submission(one), Self::Submission(other)) => one == other,
            _ => false,
        }
    }

    /// Whether the device is known to be there. Makes no call.
    fn is_reached(&self, gpu: &Gpu) -> bool {
        match self {
            Self::Submission(number) => gpu.is_known_done(*number),
            Self::List(batch) => match batch.outcome() {
                Some(Ok(number)) => gpu.is_known_done(number),
                // It was refused, and no command of it is done.
                Some(Err(_)) => true,
                None => false,
            },
        }
    }
}

impl Dropped {
    /// Notes bytes that were dropped at `point`, with their grants. Returns how many bytes wait
    /// now.
    pub(crate) fn push(&self, gpu: &Gpu, point: Point, bytes: u64, grant: Option<Grant>) -> u64 {
        let mut waiting = self.waiting.lock();
        waiting.retain(|waiting| !waiting.point.is_reached(gpu));
        if !point.is_reached(gpu) {
            match waiting.iter_mut().find(|waiting| waiting.point.is(&point)) {
                Some(waiting) => {
                    waiting.bytes += bytes;
                    waiting.grants.extend(grant);
                }
                None => waiting.push(Waiting { point, bytes, grants: grant.into_iter().collect() }),
            }
        }
        waiting.iter().map(|waiting| waiting.bytes).sum()
    }

    /// Bytes of which it is not known that they are back. Forgets the others.
    pub(crate) fn bytes(&self, gpu: &Gpu) -> u64 {
        let mut waiting = self.waiting.lock();
        waiting.retain(|waiting| !waiting.point.is_reached(gpu));
        waiting.iter().map(|waiting| waiting.bytes).sum()
    }
}
