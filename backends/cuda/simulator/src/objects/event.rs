//! Events: points in streams.

use crate::detector::{Clock, Point};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) handle: usize,
    pub(crate) timing: bool,
    pub(crate) state: State,
}

/// Where an event was recorded last.
#[derive(Debug, Clone)]
pub(crate) enum State {
    Never,
    Recorded { point: Point, clock: Arc<Clock>, stamp: Arc<OnceLock<Instant>> },
    // In a capture, behind these nodes.
    Captured { capture: u64, nodes: Vec<usize> },
}
