//! Graphs: work that was captured, and runs again and again.

use crate::code::{Answer, Code};
use crate::detector::{Clock, Point, Span};
use crate::work::Work;
use crate::world::{Site, World};
use std::collections::HashSet;

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
    /// Whether a launch frees what the last one allocated and nobody freed.
    pub(crate) frees_on_launch: bool,
}

impl World {
    /// Notes which memory of its own a graph leaves allocated when it is launched.
    ///
    /// # Errors
    /// `INVALID_VALUE` if the last launch left it allocated and nobody has freed it.
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
    pub(crate) fn check_graph(&mut self, graph: &Graph, context: u64, point: Point, before: &Clock) {
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
            let spans: Vec<Span> =
                node.work.ranges().iter().flat_map(|range| self.memory.spans(*range)).collect();
            self.check(&spans, own, &clock);
            clocks.push((clock, own));
        }
        self.site = launch;
        // What comes after the launch comes after all nodes.
        if let Some(stream) = self.streams.get_mut(&point.stream) {
            stream.clock.join(&ends);
        }
        let _ = context;
    }
}
