//! Graphs: work that was captured, and runs again and again.

use crate::detector::{Clock, Point, Span};
use crate::work::Work;
use crate::world::{Site, World};

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
}

impl World {
    /// Checks the accesses of a graph that is launched as `point` on a stream. A node is ordered after what the launch is,
    /// and after the nodes that it depends on; nodes that nothing orders may race with each other.
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
            // Each node is a stream of its own to the detector.
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
