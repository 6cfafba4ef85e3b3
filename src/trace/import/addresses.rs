//! Events that name addresses, as other programs record them, as events that name allocations.

use crate::trace::error::Fault;
use crate::trace::event::{Event, Op};
use std::collections::HashMap;

/// What is live where, and the events so far. What is freed and was never allocated was there before the recording: it becomes an
/// allocation at the start.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// What was there before, in the order in which that was seen: size and stream.
    before: Vec<(u64, u64)>,
    events: Vec<Entry>,
    /// What is live at an address.
    live: HashMap<u64, Live>,
    /// Places of streams in the order in which they come.
    streams: HashMap<u64, u64>,
    allocations: u64,
}

/// Which allocation: the n-th of those recorded, or of those that were there before.
#[derive(Debug, Clone, Copy)]
enum Name {
    Recorded(u64),
    Before(u64),
}

#[derive(Debug, Clone, Copy)]
struct Live {
    name: Name,
    size: u64,
}

#[derive(Debug)]
struct Entry {
    op: Op,
    name: Name,
    size: u64,
    stream: u64,
    t_us: u64,
}

impl Addresses {
    /// How many events there are so far.
    pub(super) fn count(&self) -> u64 {
        (self.before.len() + self.events.len()) as u64
    }

    /// Bytes at `address` were allocated.
    pub(super) fn allocate(&mut self, address: u64, size: u64, stream: u64, t_us: u64) -> Result<(), Fault> {
        if self.live.contains_key(&address) {
            return Err(Fault::AddressLive { address });
        }
        let name = Name::Recorded(self.allocations);
        self.allocations += 1;
        self.live.insert(address, Live { name, size });
        self.events.push(Entry { op: Op::Allocate, name, size, stream, t_us });
        Ok(())
    }

    /// What is at `address`, `size` bytes by the recorder's account, was freed.
    pub(super) fn free(&mut self, address: u64, size: u64, stream: u64, t_us: u64) {
        let live = self.live.remove(&address).unwrap_or_else(|| self.was_there(size, stream));
        self.events.push(Entry { op: Op::Free, name: live.name, size: live.size, stream, t_us });
    }

    /// What is at `address` is live at the end of the recording.
    pub(super) fn stays(&mut self, address: u64, size: u64, stream: u64) {
        if !self.live.contains_key(&address) {
            let live = self.was_there(size, stream);
            self.live.insert(address, live);
        }
    }

    fn was_there(&mut self, size: u64, stream: u64) -> Live {
        self.before.push((size, stream));
        Live { name: Name::Before(self.before.len() as u64 - 1), size }
    }

    /// The events: first what was there before, at time 0.
    pub(super) fn into_events(mut self) -> Vec<Event> {
        let before = self.before.len() as u64;
        let mut events = Vec::with_capacity(self.events.len() + self.before.len());
        for (id, (size, stream)) in (0..).zip(std::mem::take(&mut self.before)) {
            let stream = self.stream(stream);
            events.push(Event { op: Op::Allocate, id, size, stream, t_us: 0 });
        }
        for Entry { op, name, size, stream, t_us } in std::mem::take(&mut self.events) {
            let id = match name {
                Name::Before(id) => id,
                Name::Recorded(id) => before + id,
            };
            events.push(Event { op, id, size, stream: self.stream(stream), t_us });
        }
        events
    }

    fn stream(&mut self, stream: u64) -> u64 {
        let next = self.streams.len() as u64;
        *self.streams.entry(stream).or_insert(next)
    }
}
