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
use std::collections::{BTreeMap, HashMap, HashSet};
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
    /// What was there before, in the order in which that was seen. The id of an event is its address.
    before: Vec<TraceEvent>,
    events: Vec<TraceEvent>,
    /// The size of the allocation at an address; `None` after its free.
    at: HashMap<u64, Option<u64>>,
    streams: HashSet<u64>,
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
            streams: HashSet::new(),
        }
    }

    pub(super) fn is_live(&self, address: u64) -> bool {
        matches!(self.at.get(&address), Some(Some(_)))
    }

    /// Enters a recorded event whose id is its address. The size of a free is that by the recorder's account.
    pub(super) fn enter(&mut self, event: TraceEvent) -> Result<(), TraceFault> {
        let TraceEvent { op, id: address, size, .. } = event;
        if op == Op::Free {
            return self.free(event);
        }
        if self.is_live(address) {
            return Err(TraceFault::invalid(format!(
                "an allocation at {address:#x} is already live; record both allocations and frees, of one device alone"
            )));
        }
        self.push(event, false)?;
        self.put(address, Some(size))
    }

    fn free(&mut self, event: TraceEvent) -> Result<(), TraceFault> {
        let TraceEvent { id: address, size: freed, .. } = event;
        let event = TraceEvent { origin: 0, ..event };
        let size = match self.at.get(&address) {
            Some(&Some(size)) => size,
            Some(None) => {
                return self.note(
                    Contradiction::FreedTwice,
                    format_args!(
                        "{address:#x} is freed a second time; this free is ignored. Record all allocations of one device"
                    ),
                );
            }
            None => {
                self.push(event, true)?;
                freed
            }
        };
        if size != freed {
            self.note(
                Contradiction::OtherSize,
                format_args!(
                    "the free of {address:#x} has {freed} bytes, but its allocation {size}; the size of the allocation is kept"
                ),
            )?;
        }
        self.push(TraceEvent { size, ..event }, false)?;
        self.put(address, None)
    }

    /// Enters an allocation that is live at the end of the recording.
    pub(super) fn stays(&mut self, event: TraceEvent) -> Result<(), TraceFault> {
        let TraceEvent { id: address, size, .. } = event;
        match self.at.get(&address) {
            Some(Some(_)) => Ok(()),
            Some(None) => self.note(
                Contradiction::FreedAndLive,
                format_args!(
                    "the block at {address:#x} is live in the segments but freed in the history; the history takes precedence"
                ),
            ),
            None => {
                self.push(event, true)?;
                self.put(address, Some(size))
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

    /// Appends an event, or the allocation of what was there before.
    fn push(&mut self, event: TraceEvent, was_there: bool) -> Result<(), TraceFault> {
        // So the numbers of events fit 32 bits.
        if self.before.len() + self.events.len() >= self.max_events as usize {
            return Err(TraceFault::TooManyEvents(self.max_events));
        }
        if self.streams.len() == MAX_STREAMS && !self.streams.contains(&event.stream) {
            return Err(TraceFault::TooManyStreams(event.stream));
        }
        self.streams.insert(event.stream);
        let (events, event) = match was_there {
            true => (&mut self.before, TraceEvent { op: Op::Allocate, t_us: 0, ..event }),
            false => (&mut self.events, event),
        };
        self.budget.room(events, 1)?;
        events.push(event);
        Ok(())
    }

    fn put(&mut self, address: u64, size: Option<u64>) -> Result<(), TraceFault> {
        self.budget.room_in_map(&mut self.at)?;
        self.at.insert(address, size);
        Ok(())
    }

    /// The trace: first what was there before, at time 0. Allocations and streams are numbered in that order.
    pub(super) fn into_trace(self, origins: Vec<Origin>) -> Result<Trace, TraceFault> {
        let Self { mut budget, mut contradictions, before: mut events, events: mut recorded, at, .. } = self;
        budget.dropped_map(&at);
        drop(at);
        budget.room(&mut events, recorded.len())?;
        events.append(&mut recorded);
        let (mut count, mut most) = (0usize, 0);
        for event in &events {
            count = if event.op == Op::Free { count - 1 } else { count + 1 };
            most = most.max(count);
        }
        // The nodes of the map are allocated one by one and cannot be refused, so memory for all of them is, before.
        let mut nodes: Vec<[u8; NODE_BYTES]> = Vec::new();
        budget.room(&mut nodes, most)?;
        drop(nodes);
        // The ends of live ranges, and the numbers of live allocations, by their addresses.
        let (mut ends, mut ids) = (BTreeMap::<u64, u64>::new(), HashMap::new());
        let (mut streams, mut allocations, mut live, mut peak) = (HashMap::new(), 0, 0u64, 0);
        for event in &mut events {
            let &mut TraceEvent { op, id: address, size, .. } = event;
            let next = streams.len() as u64;
            event.stream = *streams.entry(event.stream).or_insert(next);
            if op == Op::Free {
                ends.remove(&address);
                event.id = ids.remove(&address).unwrap_or_default();
                live -= size;
                continue;
            }
            if size > 0 {
                let end = address.saturating_add(size);
                let below = ends.range(..address).next_back().filter(|(_, below)| **below > address);
                let above = ends.range(address..).next().filter(|(above, _)| **above < end);
                if let Some((&other, _)) = below.or(above) {
                    let text = format_args!(
                        "the {size} bytes at {address:#x} overlap a live allocation at {other:#x}; both are kept. Record only one device"
                    );
                    contradictions.note(Contradiction::Overlap, text, &Place::default())?;
                }
                ends.insert(address, end);
            }
            budget.room_in_map(&mut ids)?;
            ids.insert(address, allocations);
            event.id = allocations;
            allocations += 1;
            live = live.checked_add(size).ok_or_else(|| TraceFault::too_much_live(live, size))?;
            peak = live.max(peak);
        }
        Ok(Trace::of(events, peak, origins, contradictions))
    }
}
