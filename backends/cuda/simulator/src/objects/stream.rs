//! Streams: queues of operations that run later, in order.

use super::work::Work;
use crate::detector::{Clock, Point};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    // The context's default stream.
    Legacy,
    PerThread(ThreadId),
    // Made by the program. A blocking one is ordered with the default stream.
    Created { blocking: bool },
}

/// One operation of a stream.
pub(crate) struct Operation {
    pub(crate) number: u64,
    /// Operations of other streams that it waits for.
    pub(crate) waits: Vec<Point>,
    pub(crate) work: Work,
    /// When it was complete, for an event with timing.
    pub(crate) stamp: Option<Arc<OnceLock<Instant>>>,
}

pub(crate) struct Stream {
    pub(crate) context: u64,
    /// The program's handle; 0 for none, and once it is destroyed.
    pub(crate) handle: usize,
    pub(crate) kind: Kind,
    pub(crate) priority: i32,
    pub(crate) queue: VecDeque<Operation>,
    /// The number of the last operation that was enqueued, and of the last that is complete.
    pub(crate) issued: u64,
    pub(crate) done: u64,
    /// Whether a worker has it, or it is among those that are ready.
    pub(crate) is_scheduled: bool,
    /// Gates that are closed: nothing of it runs.
    pub(crate) gates: u32,
    /// The clock of operations that are ordered before its next one.
    pub(crate) clock: Clock,
    /// Streams whose first operation waits for this one.
    pub(crate) waiters: Vec<u64>,
    /// The capture that it is part of.
    pub(crate) capture: Option<u64>,
}

impl Stream {
    pub(crate) fn is_blocking(&self) -> bool {
        !matches!(self.kind, Kind::Created { blocking: false } | Kind::Legacy)
    }
}
