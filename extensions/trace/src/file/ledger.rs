//! The live allocations of a trace during reading, which decide whether an event is valid.

use super::csv::Wrong;
use super::event::{Op, TraceEvent};
use crate::error::TraceFault;
use crate::error::bounds::MAX_STREAMS;
use crate::error::contradiction::Contradiction;
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
    /// Enters the event of `line`. Returns its contradictions, or the fault for which it is invalid.
    pub(crate) fn enter(
        &mut self,
        event: &TraceEvent,
        line: u64,
    ) -> Result<[Option<Contradiction>; 2], Wrong> {
        let stream = event.stream;
        if self.streams.len() == MAX_STREAMS && !self.streams.contains(&stream) {
            return Err(("stream", TraceFault::TooManyStreams { stream }));
        }
        self.streams.insert(stream);
        let other_size = match event.op {
            Op::Allocate => self.allocate(event.id, event.size, line).map(|()| None)?,
            Op::Free => {
                let allocated = self.free(event.id, line)?;
                let (id, freed) = (event.id, event.size);
                (allocated != freed).then_some(Contradiction::FreeOfOtherSize { id, allocated, freed })
            }
        };
        let by_us = self.last_us.saturating_sub(event.t_us);
        self.last_us = event.t_us;
        Ok([(by_us > 0).then_some(Contradiction::TimeGoesBack { by_us }), other_size])
    }

    fn allocate(&mut self, id: u64, size: u64, line: u64) -> Result<(), Wrong> {
        match self.ids.get(&id) {
            Some(&State::Live { since, .. }) => return Err(("id", TraceFault::StillLive { id, since })),
            Some(&State::Freed { line }) => return Err(("id", TraceFault::UsedBefore { id, freed: line })),
            None => {}
        }
        let Some(live) = self.live_bytes.checked_add(size) else {
            return Err(("size", TraceFault::TooMuchLive { live: self.live_bytes, size }));
        };
        self.ids
            .try_reserve(1)
            .map_err(|_| ("id", TraceFault::out_of_memory::<(u64, State)>(2 * self.ids.len())))?;
        self.ids.insert(id, State::Live { size, since: line });
        self.live_bytes = live;
        self.peak_bytes = self.peak_bytes.max(live);
        Ok(())
    }

    /// Returns the size of the allocation.
    fn free(&mut self, id: u64, line: u64) -> Result<u64, Wrong> {
        match self.ids.get(&id).copied() {
            None => Err(("id", TraceFault::NeverAllocated { id })),
            Some(State::Freed { line }) => Err(("id", TraceFault::FreedTwice { id, freed: line })),
            Some(State::Live { size, .. }) => {
                self.ids.insert(id, State::Freed { line });
                self.live_bytes -= size;
                Ok(size)
            }
        }
    }
}
