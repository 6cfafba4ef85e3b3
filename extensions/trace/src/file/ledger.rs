//! The live allocations of a trace during reading, which decide whether an event is valid.

use super::csv::Wrong;
use super::event::{Op, TraceEvent};
use crate::error::TraceFault;
use crate::error::bounds::MAX_STREAMS;
// Not a faster hash: ids come from files, and this one's collisions cannot be made on purpose.
use std::collections::{HashMap, HashSet};

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    ids: HashMap<u64, State>,
    streams: HashSet<u64>,
    live_bytes: u64,
    /// The most bytes that were live.
    pub(super) peak_bytes: u64,
    /// The time of the last event.
    last_us: u64,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Live { size: u64, since: u64 },
    Freed { line: u64 },
}

impl Ledger {
    /// Enters the event of `line`. Returns the microseconds by which its time is before that of the previous event, and
    /// the size of its allocation; or the fault for which it is invalid.
    pub(crate) fn enter(&mut self, event: &TraceEvent, line: u64) -> Result<(u64, u64), Wrong> {
        let stream = event.stream;
        if self.streams.len() == MAX_STREAMS && !self.streams.contains(&stream) {
            return Err(("stream", TraceFault::TooManyStreams(stream)));
        }
        self.streams.insert(stream);
        let size = match (event.op, self.ids.get(&event.id).copied()) {
            (Op::Allocate, None) => self.allocate(event.id, event.size, line).map(|()| event.size)?,
            (Op::Free, Some(State::Live { size, .. })) => {
                self.ids.insert(event.id, State::Freed { line });
                self.live_bytes -= size;
                size
            }
            (op, state) => return Err(("id", TraceFault::invalid(wrong_id(op, event.id, state)))),
        };
        let by_us = self.last_us.saturating_sub(event.t_us);
        self.last_us = event.t_us;
        Ok((by_us, size))
    }

    fn allocate(&mut self, id: u64, size: u64, line: u64) -> Result<(), Wrong> {
        let Some(live) = self.live_bytes.checked_add(size) else {
            return Err(("size", TraceFault::too_much_live(self.live_bytes, size)));
        };
        self.ids
            .try_reserve(1)
            .map_err(|_| ("id", TraceFault::out_of_memory::<(u64, State)>(2 * self.ids.len())))?;
        self.ids.insert(id, State::Live { size, since: line });
        self.live_bytes = live;
        self.peak_bytes = self.peak_bytes.max(live);
        Ok(())
    }
}

/// Why an id is not of this operation's allocation.
fn wrong_id(op: Op, id: u64, state: Option<State>) -> String {
    match (op, state) {
        (_, None) => {
            format!("{id} was never allocated; record from the start of the program, or leave this free out")
        }
        (_, Some(State::Live { since, .. })) => {
            format!(
                "{id} is live since line {since}; free it first, or give this allocation an id of its own"
            )
        }
        (Op::Allocate, Some(State::Freed { line })) => format!(
            "{id} named an allocation that was freed in line {line}; give each allocation an id of its own"
        ),
        (Op::Free, Some(State::Freed { line })) => {
            format!("{id} was already freed in line {line}; an allocation is freed once, leave this one out")
        }
    }
}
