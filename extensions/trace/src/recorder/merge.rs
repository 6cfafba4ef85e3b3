//! Merging the logs of several threads into one sequence of events.

use super::log::{Log, Logged};
use crate::file::event::{Op, TraceEvent};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::iter::Peekable;
use std::sync::Arc;

/// Merges `logs`: each log in its order, no free before its allocation, otherwise by time. Frees without an
/// allocation are omitted: both happened while the logs were read.
pub(super) fn events(logs: &[Arc<Log>]) -> Vec<TraceEvent> {
    let logs: Vec<_> = logs.iter().map(|log| log.read()).collect();
    let allocations = logs.iter().flatten().filter(|event| !event.is_free);
    let allocated: HashSet<u64> = allocations.map(|event| event.number).collect();
    let is_whole = |event: &Logged| !event.is_free || allocated.contains(&event.number);
    let mut logs: Vec<_> = logs.into_iter().map(|log| log.into_iter().filter(is_whole).peekable()).collect();
    let mut merged = Merged::default();
    let mut next: BinaryHeap<_> = (0..logs.len()).filter_map(|log| key(&mut logs, log)).collect();
    let mut waiting: HashMap<u64, usize> = HashMap::new();
    loop {
        while let Some(Reverse((_, log))) = next.pop() {
            let Some(event) = logs[log].peek().copied() else { continue };
            if event.is_free && !merged.live.contains_key(&event.number) {
                // Its allocation is in another log, and entering that requeues this log.
                waiting.insert(event.number, log);
                continue;
            }
            logs[log].next();
            merged.enter(event);
            next.extend(key(&mut logs, log));
            if let Some(log) = waiting.remove(&event.number) {
                next.extend(key(&mut logs, log));
            }
        }
        if waiting.is_empty() {
            return merged.events;
        }
        // These are frees of buffers that were freed already.
        for (_, log) in waiting.drain() {
            logs[log].next();
            next.extend(key(&mut logs, log));
        }
    }
}

/// Returns the time of a log's next event, and the log.
fn key(logs: &mut [Peekable<impl Iterator<Item = Logged>>], log: usize) -> Option<Reverse<(u64, usize)>> {
    logs[log].peek().map(|event| Reverse((event.t_us, log)))
}

#[derive(Debug, Default)]
struct Merged {
    events: Vec<TraceEvent>,
    /// Id and size of live buffers.
    live: HashMap<u64, (u64, u64)>,
    streams: HashMap<u64, u64>,
    allocations: u64,
}

impl Merged {
    fn enter(&mut self, event: Logged) {
        let next = self.streams.len() as u64;
        let stream = *self.streams.entry(event.stream).or_insert(next);
        let (op, (id, size)) = if event.is_free {
            let Some(freed) = self.live.remove(&event.number) else { return };
            (Op::Free, freed)
        } else {
            let id = self.allocations;
            self.allocations += 1;
            self.live.insert(event.number, (id, event.size));
            (Op::Allocate, (id, event.size))
        };
        self.events.push(TraceEvent { op, id, size, stream, t_us: event.t_us, origin: event.origin });
    }
}
