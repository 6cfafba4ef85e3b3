//! Converting events that name addresses, as other programs record them, to events that name allocations.

use super::budget::Budget;
use crate::error::TraceFault;
use crate::error::bounds::MAX_STREAMS;
use crate::error::contradiction::Contradiction;
use crate::error::place::Place;
use crate::error::warning::Contradictions;
use crate::file::event::{Op, TraceEvent};
use crate::file::origin::Origin;
use crate::file::reader::Trace;
// Not a faster hash: addresses come from files, and this one's collisions cannot be made on purpose.
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The most bytes that an entry takes of an ordered map's nodes, of which each but the root is filled to five
/// elevenths.
const NODE_BYTES: usize = 48;

/// The allocations of a file that names addresses, while it is read. What is freed and was never allocated was there
/// before the recording: it becomes an allocation at the start.
#[derive(Debug)]
pub(super) struct Addresses<'a> {
    /// The place that is read.
    pub(super) place: &'a mut Place,
    pub(super) budget: Budget,
    pub(super) contradictions: Contradictions,
    max_events: u32,
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

impl<'a> Addresses<'a> {
    pub(super) fn new(
        place: &'a mut Place,
        budget: Budget,
        contradictions: Contradictions,
        max_events: u32,
    ) -> Self {
        Self {
            place,
            budget,
            contradictions,
            max_events,
            before: Vec::new(),
            events: Vec::new(),
            at: HashMap::new(),
            streams: HashMap::new(),
            allocations: 0,
        }
    }

    pub(super) fn is_live(&self, address: u64) -> bool {
        matches!(self.at.get(&address), Some(At::Live { .. }))
    }

    /// Bytes were allocated.
    pub(super) fn allocate(&mut self, recorded: Recorded) -> Result<(), TraceFault> {
        let Recorded { address, size, .. } = recorded;
        if self.is_live(address) {
            return Err(TraceFault::invalid(format!(
                "an allocation at {address:#x} is already live; record both allocations and frees, of one device alone"
            )));
        }
        let name = Name::Recorded(self.allocations);
        self.push(Op::Allocate, name, recorded)?;
        self.allocations += 1;
        self.put(address, At::Live { name, size })
    }

    /// What is at the address was freed, `size` bytes by the recorder's account.
    pub(super) fn free(&mut self, recorded: Recorded) -> Result<(), TraceFault> {
        let Recorded { address, size: freed, .. } = recorded;
        let (name, size) = match self.at.get(&address) {
            Some(&At::Live { name, size }) => (name, size),
            Some(At::Free) => {
                return self.note(
                    Contradiction::FreedTwice,
                    format_args!(
                        "{address:#x} is freed a second time; this free is ignored. Record all allocations of one device"
                    ),
                );
            }
            None => (self.was_there(Recorded { origin: 0, ..recorded })?, freed),
        };
        if size != freed {
            self.note(
                Contradiction::OtherSize,
                format_args!(
                    "the free of {address:#x} has {freed} bytes, but its allocation {size}; the size of the allocation is kept"
                ),
            )?;
        }
        self.push(Op::Free, name, Recorded { size, origin: 0, ..recorded })?;
        self.put(address, At::Free)
    }

    /// What is at the address is live at the end of the recording.
    pub(super) fn stays(&mut self, recorded: Recorded) -> Result<(), TraceFault> {
        let Recorded { address, size, .. } = recorded;
        match self.at.get(&address) {
            Some(At::Live { .. }) => Ok(()),
            Some(At::Free) => self.note(
                Contradiction::FreedAndLive,
                format_args!(
                    "the block at {address:#x} is live in the segments but freed in the history; the history takes precedence"
                ),
            ),
            None => {
                let name = self.was_there(recorded)?;
                self.put(address, At::Live { name, size })
            }
        }
    }

    /// Notes a contradiction at the place that is read.
    pub(super) fn note(
        &mut self,
        contradiction: Contradiction,
        text: fmt::Arguments<'_>,
    ) -> Result<(), TraceFault> {
        self.contradictions.note(contradiction, text, self.place)
    }

    fn was_there(&mut self, recorded: Recorded) -> Result<Name, TraceFault> {
        let name = Name::Before(self.before.len() as u32);
        self.push(Op::Allocate, name, Recorded { t_us: 0, ..recorded })?;
        Ok(name)
    }

    fn push(&mut self, op: Op, name: Name, recorded: Recorded) -> Result<(), TraceFault> {
        let Recorded { address, size, stream, t_us, origin } = recorded;
        // So numbers of events, and of allocations, fit 32 bits.
        if self.before.len() + self.events.len() >= self.max_events as usize {
            return Err(TraceFault::TooManyEvents(self.max_events));
        }
        let stream = self.stream(stream)?;
        let entries = match (op, name) {
            (Op::Allocate, Name::Before(_)) => &mut self.before,
            _ => &mut self.events,
        };
        self.budget.room(entries, 1)?;
        entries.push(Entry { address, size, t_us, name, origin, stream, op });
        Ok(())
    }

    fn put(&mut self, address: u64, at: At) -> Result<(), TraceFault> {
        self.budget.room_in_map(&mut self.at)?;
        self.at.insert(address, at);
        Ok(())
    }

    fn stream(&mut self, stream: u64) -> Result<u16, TraceFault> {
        if let Some(&known) = self.streams.get(&stream) {
            return Ok(known);
        }
        if self.streams.len() == MAX_STREAMS {
            return Err(TraceFault::TooManyStreams(stream));
        }
        self.budget.room_in_map(&mut self.streams)?;
        let next = self.streams.len() as u16;
        self.streams.insert(stream, next);
        Ok(next)
    }

    /// The trace: first what was there before, at time 0.
    pub(super) fn into_trace(mut self, origins: Vec<Origin>) -> Result<Trace, TraceFault> {
        self.budget.dropped_map(&self.at);
        self.at = HashMap::new();
        self.note_overlaps()?;
        let before = self.before.len() as u64;
        let mut events = Vec::new();
        self.budget.room(&mut events, self.before.len() + self.events.len())?;
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
                Op::Allocate => {
                    live.checked_add(size).ok_or_else(|| TraceFault::too_much_live(live, size))?
                }
                Op::Free => live - size,
            };
            peak = live.max(peak);
            let stream = number(stream).unwrap_or_default();
            events.push(TraceEvent { op, id, size, stream, t_us, origin });
        }
        Ok(Trace::of(events, peak, origins, self.contradictions))
    }

    /// All that there was before is live from the start, so this is known at the end only.
    fn note_overlaps(&mut self) -> Result<(), TraceFault> {
        let all = || self.before.iter().chain(&self.events);
        let (mut count, mut most) = (0usize, 0);
        for entry in all() {
            count = if entry.op == Op::Free { count - 1 } else { count + 1 };
            most = most.max(count);
        }
        // The nodes of the map are allocated one by one and cannot be refused, so memory for all of them is, before.
        let mut nodes: Vec<[u8; NODE_BYTES]> = Vec::new();
        self.budget.room(&mut nodes, most)?;
        self.budget.dropped(&nodes);
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
                    let text = format_args!(
                        "the {size} bytes at {address:#x} overlap a live allocation at {other:#x}; both are kept. Record only one device"
                    );
                    self.contradictions.note(Contradiction::Overlap, text, &Place::default())?;
                }
                live.insert(address, end);
            }
        }
        Ok(())
    }
}
