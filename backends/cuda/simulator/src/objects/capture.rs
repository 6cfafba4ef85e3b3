//! Captures: streams whose work becomes a graph.

use super::work::Node;
use crate::code::{Answer, Code};
use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::thread::ThreadId;

/// Which calls of which threads a capture forbids, by the header's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Global = 0,
    ThreadLocal = 1,
    Relaxed = 2,
}

impl Mode {
    pub(crate) fn of(number: c_int) -> Answer<Self> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) mode: Mode,
    /// The stream that it began on, and the thread.
    pub(crate) origin: u64,
    pub(crate) thread: ThreadId,
    /// The handle of the graph that it becomes.
    pub(crate) graph: usize,
    pub(crate) nodes: Vec<Node>,
    /// For each stream of it, the nodes that its next node comes after.
    pub(crate) frontiers: HashMap<u64, Vec<usize>>,
    pub(crate) is_invalid: bool,
}

impl Capture {
    /// Whether it ends as a graph on this thread.
    pub(crate) fn check_end(&self) -> Answer {
        if self.mode != Mode::Relaxed && self.thread != std::thread::current().id() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        if self.is_invalid {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        if self.is_joined() { Ok(()) } else { Err(Code::STREAM_CAPTURE_UNJOINED) }
    }

    /// Whether all that other streams captured comes before what the first stream ends with.
    fn is_joined(&self) -> bool {
        let mut reached = HashSet::new();
        let mut open = self.frontiers.get(&self.origin).cloned().unwrap_or_default();
        while let Some(node) = open.pop() {
            if reached.insert(node) {
                open.extend(self.nodes.get(node).into_iter().flat_map(|node| &node.dependencies));
            }
        }
        self.frontiers.values().flatten().all(|node| reached.contains(node))
    }
}
