//! Converting events that name addresses, as other programs record them, to events that name allocations.

use super::budget::Budget;
use crate::error::TraceFault;
use crate::error::bounds::MAX_STREAMS;
use crate::error::contradiction::{Contradiction, Contradictions};
use crate::error::position::Position;
use crate::file::event::{Op, TraceEvent};
use crate::file::origin::Origin;
use crate::file::reader::Trace;
// Not a faster hash: addresses come from files, and this one's collisions cannot be made on purpose.
use std::collections::{BTreeMap, HashMap};

/// The most bytes that an entry takes of an ordered map's nodes, of which each but the root is filled to five
/// elevenths.
const NODE_BYTES: usize = 48;

/// What is live where, and the events so far. What is freed and was never allocated was there before the
/// recording: it becomes an allocation at the start.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// What was there before, in the order in which that was seen.
    before: Vec<Entry>,
    events: Vec<Entry>,
    /// The allocation at an address, live or freed.
    at: HashMap<u64, At>,
    /// Streams in the order in which they come, and their places in that.
    streams: HashMap<u64, u16>,
    allocations: u32,
}

#[derive(Debug)]
struct Entry {
    address: u64,
    size: u64,
    t_us: u64,
    name: Name,
    origin: u32,
    stream: u16,
    op: Op,
}

/// Which allocation: the n-th of those recorded, or of those that were there before.
#[derive(Debug, Clone, Copy)]
enum Name {
    Recorded(u32),
    Before(u32),
}

#[derive(Debug, Clone, Copy)]
enum At {
    Live {
        name: Name,
        size: u64,
    },
    /// Something was, and is not any more.
    Free,
}

/// The data of a recorded event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recorded {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: u64,
    pub(super) t_us: u64,
    /// Of an allocation, the number of its origin.
    pub(super) origin: u32,
}

/// What reading has to keep to: how much memory, and where contradictions go.
#[derive(Debug)]
pub(super) struct Terms<'a> {
    pub(super) budget: &'a mut Budget,
    pub(super) contradictions: &'a mut Contradictions,
    pub(super) max_events: u32,
}

impl Addresses {
    /// Bytes were allocated.
    pub(super) fn allocate(&mut self, recorded: Recorded, terms: &mut Terms<'_>) -> Result<(), TraceFault> {
        let Recorded { address, size, .. } = recorded;
        if matches!(self.at.get(&address), Some(At::Live { .. })) {
            return Err(TraceFault::AddressLive { address });
        }
        let name = Name::Recorded(self.allocations);
        self.push(Op::Allocate, name, recorded, terms)?;
        self.allocations += 1;
        self.put(address, At::Live { name, size }, terms)
    }

    /// What is at the address was freed, `size` bytes by the recorder's account.
    pub(super) fn free(
        &mut self,
        recorded: Recorded,
        place: &Position,
        terms: &mut Terms<'_>,
    ) -> Result<(), TraceFault> {
        let Recorded { address, size: freed, .. } = recorded;
        let (name, size) = match self.at.get(&address) {
            Some(&At::Live { name, size }) => (name, size),
            Some(At::Free) => {
                return Ok(terms.contradictions.note(Contradiction::FreedTwice { address }, place)?);
            }
            None => (self.was_there(Recorded { origin: 0, ..recorded }, terms)?, freed),
        };
        if size != freed {
            terms.contradictions.note(Contradiction::OtherSize { address, allocated: size, freed }, place)?;
        }
        self.push(Op::Free, name, Recorded { size, origin: 0, ..recorded }, terms)?;
        self.put(address, At::Free, terms)
    }

    /// What is at the address is live at the end of the recording.
    pub(super) fn stays(
        &mut self,
        recorded: Recorded,
        place: &Position,
        terms: &mut Terms<'_>,
    ) -> Result<(), TraceFault> {
        let Recorded { address, size, .. } = recorded;
        match self.at.get(&address) {
            Some(At::Live { .. }) => Ok(()),
            Some(At::Free) => {
                Ok(terms.contradictions.note(Contradiction::FreedAndLive { address }, place)?)
            }
            None => {
                let name = self.was_there(recorded, terms)?;
                self.put(address, At::Live { name, size }, terms)
            }
        }
    }

    fn was_there(&mut self, recorded: Recorded, terms: &mut Terms<'_>) -> Result<Name, TraceFault> {
        let name = Name::Before(self.before.len() as u32);
        self.push(Op::Allocate, name, Recorded { t_us: 0, ..recorded }, terms)?;
        Ok(name)
    }

    fn push(
        &mut self,
        op: Op,
        name: Name,
        recorded: Recorded,
        terms: &mut Terms<'_>,
    ) -> Result<(), TraceFault> {
        let Recorded { address, size, stream, t_us, origin } = recorded;
        // So numbers of events, and of allocations, fit 32 bits.
        if self.before.len() + self.events.len() >= terms.max_events as usize {
            return Err(TraceFault::TooManyEvents { max: terms.max_events });
        }
        let stream = self.stream(stream, terms)?;
        let entries = match (op, name) {
            (Op::Allocate, Name::Before(_)) => &mut self.before,
            _ => &mut self.events,
        };
        terms.budget.room(entries, 1)?;
        entries.push(Entry { address, size, t_us, name, origin, stream, op });
        Ok(())
    }

    fn put(&mut self, address: u64, at: At, terms: &mut Terms<'_>) -> Result<(), TraceFault> {
        terms.budget.room_in_map(&mut self.at)?;
        self.at.insert(address, at);
        Ok(())
    }

    fn stream(&mut self, stream: u64, terms: &mut Terms<'_>) -> Result<u16, TraceFault> {
        if let Some(&known) = self.streams.get(&stream) {
            return Ok(known);
        }
        if self.streams.len() == MAX_STREAMS {
            return Err(TraceFault::TooManyStreams { stream });
        }
        terms.budget.room_in_map(&mut self.streams)?;
        let next = self.streams.len() as u16;
        self.streams.insert(stream, next);
        Ok(next)
    }

    /// The trace: first what was there before, at time 0.
    pub(super) fn into_trace(
        mut self,
        origins: Vec<Origin>,
        mut contradictions: Contradictions,
        budget: &mut Budget,
    ) -> Result<Trace, TraceFault> {
        budget.dropped_map(&self.at);
        self.at = HashMap::new();
        self.note_overlaps(&mut contradictions, budget)?;
        let before = self.before.len() as u64;
        let mut events = Vec::new();
        budget.room(&mut events, self.before.len() + self.events.len())?;
        // Streams by the order in which they come now.
        let mut numbers = [None; MAX_STREAMS];
        let mut next = 0;
        let mut number = |stream: u16| {
            let number = numbers.get_mut(usize::from(stream))?;
            Some(*number.get_or_insert_with(|| {
                next += 1;
                next - 1
            }))
        };
        let (mut live, mut peak) = (0u64, 0);
        for &Entry { op, name, size, stream, t_us, origin, .. } in self.before.iter().chain(&self.events) {
            let id = match name {
                Name::Before(id) => id.into(),
                Name::Recorded(id) => before + u64::from(id),
            };
            live = match op {
                Op::Allocate => live.checked_add(size).ok_or(TraceFault::TooMuchLive { live, size })?,
                Op::Free => live - size,
            };
            peak = live.max(peak);
            let stream = number(stream).unwrap_or_default();
            events.push(TraceEvent { op, id, size, stream, t_us, origin });
        }
        Ok(Trace::of(events, peak, origins, contradictions))
    }

    /// All that there was before is live from the start, so this is known at the end only.
    fn note_overlaps(
        &self,
        contradictions: &mut Contradictions,
        budget: &mut Budget,
    ) -> Result<(), TraceFault> {
        let all = || self.before.iter().chain(&self.events);
        let (mut count, mut most) = (0usize, 0);
        for entry in all() {
            count = if entry.op == Op::Free { count - 1 } else { count + 1 };
            most = most.max(count);
        }
        // The nodes of the map are allocated one by one and cannot be refused, so memory for all of them is, before.
        let mut nodes: Vec<[u8; NODE_BYTES]> = Vec::new();
        budget.room(&mut nodes, most)?;
        budget.dropped(&nodes);
        drop(nodes);
        // The ends of live ranges, by their starts.
        let mut live = BTreeMap::<u64, u64>::new();
        for &Entry { op, address, size, .. } in all() {
            if op == Op::Free {
                live.remove(&address);
            } else if size > 0 {
                let end = address.saturating_add(size);
                let below = live.range(..address).next_back().filter(|(_, below)| **below > address);
                let above = live.range(address..).next().filter(|(above, _)| **above < end);
                if let Some((&other, _)) = below.or(above) {
                    let overlap = Contradiction::Overlap { address, size, other };
                    contradictions.note(overlap, &Position::default())?;
                }
                live.insert(address, end);
            }
        }
        Ok(())
    }
}
