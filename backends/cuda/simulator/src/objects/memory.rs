//! Memory: the map of addresses, and what is behind them.

use super::virtual_memory::{Physical, Reservation};
use crate::detector::Span;
use crate::kernels::Range;
use std::collections::{BTreeMap, HashMap};

/// The call that made an allocation. It determines the call that frees it, and the devices that may access it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Device,
    Managed,
    Pinned,
    /// The program's own memory, while it is registered.
    Registered,
    /// A pool's memory.
    Chunk(u64),
    /// Memory of a captured graph.
    Graph,
}

#[derive(Debug)]
pub(crate) struct Allocation {
    /// Its number as a physical memory, for the detector.
    pub(crate) backing: u64,
    pub(crate) bytes: u64,
    pub(crate) source: Source,
    pub(crate) context: u64,
    pub(crate) device: usize,
    /// As `cuMemHostGetFlags` returns them.
    pub(crate) flags: u32,
}

#[derive(Debug)]
pub(crate) enum Area {
    Allocation(Allocation),
    Reservation(Reservation),
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// By the first address.
    pub(crate) areas: BTreeMap<u64, Area>,
    pub(crate) physical: HashMap<u64, Physical>,
}

impl Area {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Allocation(allocation) => allocation.bytes,
            Self::Reservation(reservation) => reservation.bytes,
        }
    }
}

impl Memory {
    /// The area that has an address, and where it begins.
    pub(crate) fn area(&self, address: u64) -> Option<(u64, &Area)> {
        let (&start, area) = self.areas.range(..=address).next_back()?;
        (address - start < area.bytes().max(1)).then_some((start, area))
    }

    /// Returns the physical memory of a range of addresses; empty for memory of the host that the driver does
    /// not know.
    pub(crate) fn spans(&self, range: Range) -> Vec<Span> {
        match self.area(range.address) {
            None => Vec::new(),
            Some((start, Area::Allocation(allocation))) => {
                let first = range.address - start;
                let end = (first + range.bytes).min(allocation.bytes);
                vec![Span { backing: allocation.backing, start: first, end, write: range.write }]
            }
            Some((start, Area::Reservation(reservation))) => {
                let first = range.address - start;
                reservation.spans(first, first + range.bytes, range.write)
            }
        }
    }

    pub(crate) fn leaks(&self) -> Vec<String> {
        let mut leaks = Vec::new();
        for (start, area) in &self.areas {
            match area {
                Area::Allocation(Allocation { source: Source::Chunk(_) | Source::Graph, .. }) => {}
                Area::Allocation(allocation) => {
                    leaks.push(format!(
                        "{} bytes of {:?} memory at {start:#x}",
                        allocation.bytes, allocation.source
                    ));
                }
                Area::Reservation(reservation) => {
                    leaks.push(format!("{} bytes of addresses at {start:#x}", reservation.bytes));
                }
            }
        }
        leaks.extend(
            self.physical.values().map(|physical| format!("{} bytes of physical memory", physical.bytes)),
        );
        leaks.sort_unstable();
        leaks
    }
}
