//! Assigning addresses to the allocations of a trace, for formats that need them.

use crate::error::TraceFault;
use crate::file::event::{Op, TraceEvent};
use crate::file::reader::Trace;
use std::collections::HashMap;
use std::io;
use vrampool::arena::{Arena, ArenaLayout, Zone};

/// The start of the range: a typical CUDA address.
pub(super) const START: u64 = 0x7f00_0000_0000;

/// What fits behind it, in a signed number of 64 bits and with room to spare.
const MAX: u64 = 1 << 60;

/// PyTorch's unit.
const UNIT: u64 = 512;

/// One allocation and where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub(super) address: u64,
    /// Bytes asked for.
    pub(super) size: u64,
}

impl Placed {
    /// Bytes that it takes of the range.
    pub(super) fn rounded(self) -> u64 {
        self.size.max(1).next_multiple_of(UNIT)
    }
}

/// Where the allocations of a trace are.
#[derive(Debug)]
pub(super) struct AddressLayout {
    /// Of each event the allocation that it makes or frees.
    pub(super) placed: Vec<Placed>,
    /// What is live at the end, by address.
    pub(super) live: Vec<Placed>,
    /// Bytes that the trace takes from the range.
    pub(super) bytes: u64,
}

impl AddressLayout {
    pub(super) fn of(trace: &Trace) -> Result<Self, TraceFault> {
        let arena = Arena::new(ArenaLayout::new(MAX).alignment(UNIT));
        let mut arena = arena.map_err(|error| TraceFault::Writer(io::Error::other(error)))?;
        let (mut live, mut bytes) = (HashMap::new(), 0);
        let place = |(number, &TraceEvent { op, id, size, .. }): (usize, &TraceEvent)| {
            let too_large = || {
                TraceFault::invalid(format!(
                    "event {number}: no addresses are left for {size} bytes: more than {MAX} bytes are live; write \
                     the trace as csv"
                ))
            };
            if op == Op::Free {
                // A trace frees what is live: its reader made sure.
                let (block, placed) = live.remove(&id).ok_or_else(too_large)?;
                arena.free(block).map_err(|_| too_large())?;
                return Ok(placed);
            }
            let block = arena.allocate(size.max(1), Zone::Dynamic).map_err(|_| too_large())?;
            let offset = arena.offset(block).map_err(|_| too_large())?;
            let placed = Placed { address: START + offset, size };
            bytes = bytes.max(offset + placed.rounded());
            live.insert(id, (block, placed));
            Ok(placed)
        };
        let placed = trace.events().iter().enumerate().map(place).collect::<Result<_, TraceFault>>()?;
        let mut live: Vec<_> = live.into_values().map(|(_, placed)| placed).collect();
        live.sort_unstable_by_key(|placed| placed.address);
        Ok(Self { placed, live, bytes })
    }
}
