//! Assigning addresses to the allocations of a trace, for formats that need them.

use crate::error::TraceFault;
use crate::file::event::{Op, TraceEvent};
use crate::file::reader::Trace;
use std::collections::HashMap;
use vrampool::arena::{Arena, ArenaLayout, BlockId, Zone};

/// The start of the range: a typical CUDA address.
pub(super) const START: u64 = 0x7f00_0000_0000;

/// What fits behind it, in a signed number of 64 bits and with room to spare.
const MAX: u64 = 1 << 60;

/// PyTorch's unit.
pub(super) const UNIT: u64 = 512;

/// One allocation and where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub(super) address: u64,
    /// Bytes asked for.
    pub(super) size: u64,
    pub(super) stream: u64,
}

/// Goes along a trace and says where each event's allocation is.
#[derive(Debug)]
pub(super) struct AddressLayout {
    arena: Arena,
    live: HashMap<u64, (BlockId, Placed)>,
    highest: u64,
}

impl AddressLayout {
    pub(super) fn new() -> Result<Self, TraceFault> {
        let arena = Arena::new(ArenaLayout::new(MAX).alignment(UNIT));
        let arena = arena.map_err(|error| TraceFault::Writer(std::io::Error::other(error)))?;
        Ok(Self { arena, live: HashMap::new(), highest: 0 })
    }

    /// Where the allocation is that the event of this number makes or frees.
    pub(super) fn place(&mut self, event: &TraceEvent, number: u64) -> Result<Placed, TraceFault> {
        let &TraceEvent { op, id, size, stream, .. } = event;
        let too_large = || {
            TraceFault::invalid(format!(
                "event {number}: no addresses are left for {size} bytes: more than {MAX} bytes are live; write the trace as csv"
            ))
        };
        match op {
            Op::Allocate => {
                let block = self.arena.allocate(size.max(1), Zone::Dynamic).map_err(|_| too_large())?;
                let offset = self.arena.offset(block).map_err(|_| too_large())?;
                self.highest = self.highest.max(offset + size.max(1).next_multiple_of(UNIT));
                let placed = Placed { address: START + offset, size, stream };
                self.live.insert(id, (block, placed));
                Ok(placed)
            }
            // A trace frees what is live: its reader made sure.
            Op::Free => {
                let (block, placed) = self.live.remove(&id).ok_or_else(too_large)?;
                self.arena.free(block).map_err(|_| too_large())?;
                Ok(placed)
            }
        }
    }

    /// Goes along a whole trace. Answers how many bytes it takes from the range, and what is live at the end,
    /// by address.
    pub(super) fn of(trace: &Trace) -> Result<(u64, Vec<Placed>), TraceFault> {
        let mut layout = Self::new()?;
        for (event, number) in trace.events().iter().zip(0..) {
            layout.place(event, number)?;
        }
        let mut live: Vec<_> = layout.live.into_values().map(|(_, placed)| placed).collect();
        live.sort_unstable_by_key(|placed| placed.address);
        Ok((layout.highest, live))
    }
}
