//! Work: what of it races, what it may touch, and graphs of it.

use super::World;
use crate::code::{Answer, Code};
use crate::detector::{Clock, Point, Span};
use crate::kernels::Range;
use crate::objects::handle::Object;
use crate::objects::work::{Graph, Work};
use std::collections::HashSet;
use std::sync::Arc;

impl World {
    /// Checks the accesses of work that is enqueued as `point` against all that is not ordered before it.
    pub(crate) fn check_work(&mut self, work: &Work, point: Point, before: &Clock) {
        if let Work::Graph(graph) = work {
            let graph = Arc::clone(graph);
            self.check_graph(&graph, point, before);
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

    /// Enqueues a program's launch or upload behind the last one, or captures it.
    pub(crate) fn run_program(&mut self, program: u64, stream: u64, work: Work) -> Answer {
        if let Some(capture) = self.capturing(stream)? {
            self.capture_work(capture, stream, work);
            return Ok(());
        }
        let last = self.execs.get(&program).and_then(|program| program.last.clone());
        let waits = match last {
            Some((point, clock)) => {
                self.stream(stream)?.clock.join(&clock);
                vec![point]
            }
            None => Vec::new(),
        };
        let point = self.enqueue(stream, work, waits)?;
        let clock = self.stream(stream)?.clock.clone();
        if let Some(program) = self.execs.get_mut(&program) {
            program.last = Some((point, clock));
        }
        Ok(())
    }

    /// Records the memory that a graph allocates and leaves allocated when it is launched.
    ///
    /// # Errors
    /// `INVALID_VALUE` if the last launch left it allocated and nothing has freed it.
    pub(crate) fn check_memory_of(&mut self, graph: &Graph) -> Answer {
        let mut left = HashSet::new();
        for node in &graph.nodes {
            // The first mark of an address allocates it, the second one frees it.
            if let Work::Mark { address, .. } = node.work
                && !left.remove(&address)
            {
                left.insert(address);
            }
        }
        if !graph.frees_on_launch && left.iter().any(|address| self.graph_memory.contains(address)) {
            return Err(Code::INVALID_VALUE);
        }
        self.graph_memory.extend(left);
        Ok(())
    }

    /// Checks the accesses of a graph that is launched as `point` on a stream. A node is ordered after what
    /// the launch is, and after the nodes that it depends on; nodes that nothing orders may race with each
    /// other.
    fn check_graph(&mut self, graph: &Graph, point: Point, before: &Clock) {
        let launch = self.site;
        let mut clocks: Vec<(Clock, Point)> = Vec::with_capacity(graph.nodes.len());
        let mut ends = Clock::default();
        for node in &graph.nodes {
            let mut clock = before.clone();
            for &dependency in &node.dependencies {
                if let Some((before, point)) = clocks.get(dependency) {
                    clock.join(before);
                    clock.add(*point);
                }
            }
            // The detector treats each node as a separate stream.
            let own = Point { stream: self.next_number(), number: 1 };
            ends.add(own);
            self.site = node.site;
            let spans = self.spans(&node.work.ranges());
            self.check(&spans, own, &clock);
            clocks.push((clock, own));
        }
        self.site = launch;
        // Later operations are ordered after all nodes.
        if let Some(stream) = self.streams.get_mut(&point.stream) {
            stream.clock.join(&ends);
        }
    }

    pub(crate) fn add_graph(&mut self, graph: Graph) -> usize {
        let number = self.next_number();
        self.graphs.insert(number, graph);
        self.handles.add(Object::Graph(number))
    }

    pub(crate) fn destroy_graph(&mut self, handle: usize) -> Answer {
        let graph = self.graph_of(handle)?;
        self.handles.remove(handle);
        self.graphs.remove(&graph);
        Ok(())
    }
}
