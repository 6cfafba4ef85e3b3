//! Captures: what goes into a graph, what a capture forbids, and what that does to it.

use super::World;
use crate::code::{Answer, Code};
use crate::objects::capture::{Capture, Mode};
use crate::objects::stream::Kind;
use crate::objects::work::{Graph, Node, Work};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::c_int;

thread_local! {
    /// The calls that captures may forbid this thread.
    static MODE: Cell<c_int> = const { Cell::new(Mode::Global as c_int) };
}

/// Exchanges this thread's mode. The driver takes numbers that mean nothing, too.
pub(crate) fn exchange_mode(mode: c_int) -> c_int {
    MODE.replace(mode)
}

impl World {
    pub(crate) fn begin_capture(&mut self, stream: u64, mode: Mode) -> Answer {
        let of = self.stream(stream)?;
        if of.kind == Kind::Legacy {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if of.capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        let number = self.next_number();
        let thread = std::thread::current().id();
        let graph = self.add_graph(Graph::default());
        let capture = Capture {
            mode,
            origin: stream,
            thread,
            graph,
            nodes: Vec::new(),
            frontiers: HashMap::from([(stream, Vec::new())]),
            is_invalid: false,
        };
        self.captures.insert(number, capture);
        self.stream(stream)?.capture = Some(number);
        Ok(())
    }

    /// The capture that work on a stream goes into, which is valid.
    ///
    /// # Errors
    /// [`Code::STREAM_CAPTURE_IMPLICIT`] of the legacy stream while a stream that it is ordered with captures, whose
    /// capture is invalid then.
    pub(crate) fn capturing(&mut self, stream: u64) -> Answer<Option<u64>> {
        let of = self.stream(stream)?;
        if of.kind == Kind::Legacy {
            let context = of.context;
            return self.check_implicit(context).map(|()| None);
        }
        let Some(number) = of.capture else { return Ok(None) };
        match self.captures.get(&number) {
            Some(capture) if capture.is_invalid => Err(Code::STREAM_CAPTURE_INVALIDATED),
            Some(_) => Ok(Some(number)),
            None => Ok(None),
        }
    }

    /// 0 for none, 1 for a capture, 2 for one that is invalid; and the capture's number.
    pub(crate) fn capture_status(&mut self, stream: u64) -> Answer<(c_int, u64)> {
        let of = self.stream(stream)?;
        if of.kind == Kind::Legacy {
            let context = of.context;
            // A question only: the capture goes on.
            return match self.captures_ordered_with_legacy(context).is_empty() {
                true => Ok((0, 0)),
                false => Err(Code::STREAM_CAPTURE_IMPLICIT),
            };
        }
        let number = of.capture;
        let capture = number.and_then(|number| self.captures.get(&number).map(|capture| (number, capture)));
        Ok(capture.map_or((0, 0), |(number, capture)| (if capture.is_invalid { 2 } else { 1 }, number)))
    }

    /// The handle of the graph that a capture becomes; 0 for none.
    pub(crate) fn graph_of_capture(&self, capture: u64) -> usize {
        self.captures.get(&capture).map_or(0, |capture| capture.graph)
    }

    /// Has the next node of a stream come after none.
    pub(crate) fn clear_dependencies(&mut self, capture: u64, stream: u64) -> Answer {
        let capture = self.captures.get_mut(&capture).ok_or(Code::ILLEGAL_STATE)?;
        capture.frontiers.insert(stream, Vec::new());
        Ok(())
    }

    pub(crate) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.is_invalid = true;
        }
    }

    pub(crate) fn frontier(&self, capture: u64, stream: u64) -> Vec<usize> {
        let capture = self.captures.get(&capture);
        capture.and_then(|capture| capture.frontiers.get(&stream)).cloned().unwrap_or_default()
    }

    /// Appends a node to what a stream has captured.
    pub(crate) fn capture_work(&mut self, capture: u64, stream: u64, work: Work) -> usize {
        let site = self.site;
        let Some(capture) = self.captures.get_mut(&capture) else { return 0 };
        let dependencies = capture.frontiers.get(&stream).cloned().unwrap_or_default();
        let node = capture.nodes.len();
        capture.nodes.push(Node { work, dependencies, site });
        capture.frontiers.insert(stream, vec![node]);
        node
    }

    /// Has a stream wait for nodes of a capture, which makes it part of it.
    pub(crate) fn join_capture(
        &mut self,
        stream: u64,
        capture: u64,
        nodes: &[usize],
        is_ignored: bool,
    ) -> Answer {
        let of = self.stream(stream)?;
        match of.capture {
            Some(other) if other != capture => {
                self.invalidate(other);
                self.invalidate(capture);
                return Err(Code::STREAM_CAPTURE_MERGE);
            }
            _ if of.kind == Kind::Legacy => {
                self.invalidate(capture);
                return Err(Code::STREAM_CAPTURE_IMPLICIT);
            }
            _ => of.capture = Some(capture),
        }
        if let Some(capture) = self.captures.get_mut(&capture) {
            let frontier = capture.frontiers.entry(stream).or_default();
            if !is_ignored {
                frontier.extend(
                    nodes.iter().filter(|node| !frontier.contains(node)).copied().collect::<Vec<_>>(),
                );
            }
        }
        Ok(())
    }

    /// Takes a stream that is destroyed out of its capture, which ends with the stream that it began on.
    pub(crate) fn leave_capture(&mut self, stream: u64) -> Answer {
        let Some(number) = self.stream(stream)?.capture else { return Ok(()) };
        match self.captures.get(&number) {
            Some(capture) if capture.origin == stream => {
                if let Some(capture) = self.take_capture(number) {
                    // It is there unless the program destroyed it.
                    let _ = self.destroy_graph(capture.graph);
                }
            }
            _ => self.invalidate(number),
        }
        Ok(())
    }

    /// Removes a capture, and its streams from it.
    fn take_capture(&mut self, number: u64) -> Option<Capture> {
        let capture = self.captures.remove(&number)?;
        for stream in capture.frontiers.keys() {
            if let Some(stream) = self.streams.get_mut(stream) {
                stream.capture = None;
            }
        }
        Some(capture)
    }

    /// Ends a capture, and returns the handle of its graph.
    pub(crate) fn end_capture(&mut self, stream: u64) -> Answer<usize> {
        let Some(number) = self.stream(stream)?.capture else { return Err(Code::ILLEGAL_STATE) };
        let Some(capture) = self.captures.get(&number) else { return Err(Code::ILLEGAL_STATE) };
        if capture.origin != stream {
            self.invalidate(number);
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        let Some(capture) = self.take_capture(number) else { return Err(Code::ILLEGAL_STATE) };
        let handle = capture.graph;
        let checked = capture.check_end();
        if checked.is_err() {
            self.destroy_graph(handle)?;
        } else if let Ok(graph) = self.graph_of(handle)
            && let Some(graph) = self.graphs.get_mut(&graph)
        {
            graph.nodes = capture.nodes;
        }
        checked.map(|()| handle)
    }

    /// A call that may disturb a capture, such as one that allocates: fails where a capture of this thread,
    /// or one of any thread that forbids it to all, is under way, and spoils it.
    pub(crate) fn check_unsafe_call(&mut self) -> Answer {
        let (mode, thread) = (MODE.get(), std::thread::current().id());
        if mode == Mode::Relaxed as c_int {
            return Ok(());
        }
        let forbids = |capture: &Capture| match capture.mode {
            Mode::Relaxed => false,
            Mode::ThreadLocal => capture.thread == thread,
            Mode::Global => mode == Mode::Global as c_int || capture.thread == thread,
        };
        let spoilt: Vec<u64> =
            self.captures.iter().filter(|(_, capture)| forbids(capture)).map(|(&number, _)| number).collect();
        self.spoil(spoilt, Code::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Invalidates these captures, and fails with `code` if there are any.
    fn spoil(&mut self, captures: impl IntoIterator<Item = u64>, code: Code) -> Answer {
        let mut answer = Ok(());
        for capture in captures {
            self.invalidate(capture);
            answer = Err(code);
        }
        answer
    }

    /// A call that waits for all of a context: not while a stream of it is captured.
    pub(crate) fn check_no_capture_in(&mut self, context: u64) -> Answer {
        let captured: HashSet<u64> = self
            .streams
            .values()
            .filter(|stream| stream.context == context)
            .filter_map(|stream| stream.capture)
            .collect();
        self.spoil(captured, Code::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// A call that no stream takes while it captures.
    pub(crate) fn check_not_captured(&mut self, stream: u64) -> Answer {
        let of = self.stream(stream)?;
        if of.kind == Kind::Legacy {
            let context = of.context;
            return self.check_implicit(context);
        }
        let captured = of.capture;
        self.spoil(captured, Code::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Work on the null stream: not while a stream that it is ordered with is captured.
    pub(crate) fn check_implicit(&mut self, context: u64) -> Answer {
        let captured = self.captures_ordered_with_legacy(context);
        self.spoil(captured, Code::STREAM_CAPTURE_IMPLICIT)
    }

    fn captures_ordered_with_legacy(&self, context: u64) -> HashSet<u64> {
        self.streams
            .values()
            .filter(|stream| stream.context == context && stream.is_blocking())
            .filter_map(|stream| stream.capture)
            .collect()
    }

    /// Enqueues work, or captures it.
    pub(crate) fn submit(&mut self, stream: u64, work: Work) -> Answer {
        if let Some(capture) = self.capturing(stream)? {
            self.capture_work(capture, stream, work);
            return Ok(());
        }
        self.enqueue(stream, work, Vec::new()).map(|_| ())
    }
}
