//! Work of operations: fills, copies, kernels, host functions, and whole graphs of them.

use crate::detector::{Clock, Point, Site};
use crate::kernels::{Kernel, Range};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// The work of one operation. Addresses are the program's.
#[derive(Clone)]
pub(crate) enum Work {
    // A point in the stream: an event, a wait.
    Nothing,
    Fill {
        address: u64,
        value: Vec<u8>,
        count: u64,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
        /// Whether `to`, and `from`, was the host's when the copy was enqueued.
        to_host: bool,
        from_host: bool,
    },
    // A copy from memory that the driver has already read.
    Upload {
        to: u64,
        bytes: Arc<Vec<u8>>,
    },
    Kernel {
        kernel: &'static Kernel,
        arguments: Vec<u64>,
    },
    Host {
        function: extern "C" fn(*mut c_void),
        argument: usize,
    },
    Callback {
        function: extern "C" fn(usize, c_int, *mut c_void),
        stream: usize,
        argument: usize,
    },
    // Memory that begins, or ends, its life in the order of the stream.
    Mark {
        address: u64,
        bytes: u64,
    },
    Graph(Arc<Graph>),
}

impl Work {
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing | Self::Mark { .. })
    }

    /// Returns the ranges that it reads and writes, without a graph's nodes.
    pub(crate) fn ranges(&self) -> Vec<Range> {
        let range = |address, bytes, write| Range { address, bytes, write, host: false };
        match self {
            Self::Nothing | Self::Host { .. } | Self::Callback { .. } | Self::Graph(_) => Vec::new(),
            Self::Fill { address, value, count } => vec![range(*address, value.len() as u64 * count, true)],
            Self::Copy { to, from, bytes, to_host, from_host } => vec![
                Range { host: *from_host, ..range(*from, *bytes, false) },
                Range { host: *to_host, ..range(*to, *bytes, true) },
            ],
            Self::Upload { to, bytes } => vec![range(*to, bytes.len() as u64, true)],
            Self::Kernel { kernel, arguments } => (kernel.touches)(arguments),
            Self::Mark { address, bytes } => vec![range(*address, *bytes, true)],
        }
    }
}

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) work: Work,
    /// Earlier nodes that it comes after.
    pub(crate) dependencies: Vec<usize>,
    /// The call that captured it.
    pub(crate) site: Site,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("dependencies", &self.dependencies)
            .field("site", &self.site)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    /// In an order in which dependencies come first.
    pub(crate) nodes: Vec<Node>,
    /// Whether a launch frees what the last one allocated and nothing freed.
    pub(crate) frees_on_launch: bool,
}

/// A graph that was instantiated.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) graph: Arc<Graph>,
    /// Its last launch or upload, and what is ordered before the end of it: the next one runs behind it, on whatever
    /// stream.
    pub(crate) last: Option<(Point, Clock)>,
}
