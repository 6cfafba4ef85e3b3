//! What an operation does: fills, copies, kernels, host functions, and whole graphs of them.

use crate::code::{Answer, Code};
use crate::detector::{Clock, Point, Span};
use crate::graph::Graph;
use crate::kernels::Kernel;
use crate::world::World;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// The work of one operation. Addresses are the program's.
#[derive(Clone)]
pub(crate) enum Work {
    /// A point in the stream: an event, a wait.
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
    /// A copy from memory that the driver has already read.
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
    /// Memory that begins, or ends, its life in the order of the stream.
    Mark {
        address: u64,
        bytes: u64,
    },
    Graph(Arc<Graph>),
}

/// A range of addresses that work touches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) write: bool,
    /// Memory of the host that the driver knows nothing of. All other memory is gone once it has left the map
    /// of addresses.
    pub(crate) host: bool,
}

impl Work {
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing | Self::Mark { .. })
    }

    /// What it reads and writes, without a graph's nodes.
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

impl World {
    /// Checks the accesses of work that is enqueued as `point` against all that is not ordered before it.
    pub(crate) fn check_work(&mut self, work: &Work, context: u64, point: Point, before: &Clock) {
        if let Work::Graph(graph) = work {
            let graph = Arc::clone(graph);
            self.check_graph(&graph, context, point, before);
            return;
        }
        if let Work::Copy { to, from, bytes, .. } = work
            && to < &(from + bytes)
            && from < &(to + bytes)
        {
            self.report(format!("a copy of {bytes} bytes overlaps itself: {from:#x} to {to:#x}"));
        }
        let spans = self.spans(&work.ranges());
        self.check(&spans, point, before);
    }

    fn spans(&self, ranges: &[Range]) -> Vec<Span> {
        ranges.iter().flat_map(|range| self.memory.spans(*range)).collect()
    }

    /// Whether work on `context` may touch what it touches.
    pub(crate) fn may_do(&self, work: &Work, context: u64) -> Answer {
        if let Work::Graph(graph) = work {
            return graph.nodes.iter().try_for_each(|node| self.may_do(&node.work, context));
        }
        let is_kernel = matches!(work, Work::Kernel { .. });
        for range in work.ranges() {
            if range.bytes > 0 && !self.is_accessible(range, context, is_kernel) {
                return Err(Code::ILLEGAL_ADDRESS);
            }
        }
        Ok(())
    }

    /// A context's work failed: no context of the process works any more, on whatever device, and every call
    /// fails with the code.
    pub(crate) fn lose(&mut self, code: Code) {
        for context in self.contexts.values_mut() {
            context.lost.get_or_insert(code);
        }
        for device in &mut self.devices {
            device.lost.get_or_insert(code);
        }
    }
}

/// Does the part of the work that touches memory, which was found accessible.
pub(crate) fn touch(work: &Work) {
    match work {
        Work::Nothing | Work::Host { .. } | Work::Callback { .. } | Work::Mark { .. } => {}
        Work::Fill { address, value, count } => fill(*address, value, *count),
        Work::Copy { to, from, bytes, .. } => copy(*to, *from, *bytes),
        Work::Upload { to, bytes } => copy(*to, bytes.as_ptr() as u64, bytes.len() as u64),
        Work::Kernel { kernel, arguments } => (kernel.run)(arguments),
        Work::Graph(graph) => graph.nodes.iter().for_each(|node| {
            touch(&node.work);
            run_host(&node.work);
        }),
    }
}

/// Does the part of the work that is the program's own.
pub(crate) fn run_host(work: &Work) {
    match work {
        Work::Host { function, argument } => function(std::ptr::with_exposed_provenance_mut(*argument)),
        Work::Callback { function, stream, argument } => {
            function(*stream, 0, std::ptr::with_exposed_provenance_mut(*argument));
        }
        _ => {}
    }
}

fn fill(address: u64, value: &[u8], count: u64) {
    if let [byte] = value {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: the range was found accessible when the operation began, and stays mapped while it runs,
        // because who unmaps waits for all that run. Races of the program's are what the detector reports.
        unsafe { start.write_bytes(*byte, count as usize) };
        return;
    }
    for index in 0..count {
        copy(address + index * value.len() as u64, value.as_ptr() as u64, value.len() as u64);
    }
}

fn copy(to: u64, from: u64, bytes: u64) {
    let source = std::ptr::with_exposed_provenance::<u8>(from as usize);
    let target = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
    // SAFETY: as in `fill`; memory of the host outside the driver's is the program's to keep until the copy
    // is done.
    unsafe { std::ptr::copy(source, target, bytes as usize) };
}
