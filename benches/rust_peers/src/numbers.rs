//! Crates that manage numbers in one range. What they hold is the end of the highest live block.

use crate::Peer;
use offset_allocator::{Allocation, Allocator};
use range_alloc::RangeAllocator;
use std::error::Error;
use std::ops::Range;

/// The unit of CUDA's allocations.
const UNIT: u64 = 512;
/// Of a device, in units.
const UNITS: u64 = (80 << 30) / UNIT;
const MAX_BLOCKS: u32 = 1 << 17;

fn units(bytes: u64) -> u64 {
    bytes.max(1).div_ceil(UNIT)
}

/// The highest end of a block, in units. All blocks are free when the peak is taken.
#[derive(Default)]
struct Ends(u64);

impl Ends {
    fn add(&mut self, end: u64) {
        self.0 = self.0.max(end);
    }

    fn take_peak(&mut self) -> u64 {
        std::mem::take(&mut self.0) * UNIT
    }
}

/// The crate `offset-allocator`.
pub struct Offsets {
    allocator: Allocator,
    ends: Ends,
}

impl Offsets {
    /// Nothing is live.
    pub fn new() -> Self {
        Self { allocator: Allocator::with_max_allocs(UNITS as u32, MAX_BLOCKS), ends: Ends::default() }
    }
}

impl Peer for Offsets {
    type Block = Allocation;

    fn allocate(&mut self, bytes: u64, _: usize) -> Result<Allocation, Box<dyn Error>> {
        let units = units(bytes);
        let block = self.allocator.allocate(units as u32).ok_or("the range is full")?;
        self.ends.add(u64::from(block.offset) + units);
        Ok(block)
    }

    fn free(&mut self, block: Allocation, _: usize) {
        self.allocator.free(block);
    }

    fn take_peak(&mut self) -> u64 {
        self.ends.take_peak()
    }
}

/// The crate `range-alloc`.
pub struct Ranges {
    allocator: RangeAllocator<u64>,
    ends: Ends,
}

impl Ranges {
    /// Nothing is live.
    pub fn new() -> Self {
        Self { allocator: RangeAllocator::new(0..UNITS), ends: Ends::default() }
    }
}

impl Peer for Ranges {
    type Block = Range<u64>;

    fn allocate(&mut self, bytes: u64, _: usize) -> Result<Range<u64>, Box<dyn Error>> {
        let block = self.allocator.allocate_range(units(bytes)).map_err(|_| "the range is full")?;
        self.ends.add(block.end);
        Ok(block)
    }

    fn free(&mut self, block: Range<u64>, _: usize) {
        self.allocator.free_range(block);
    }

    fn take_peak(&mut self) -> u64 {
        self.ends.take_peak()
    }
}
