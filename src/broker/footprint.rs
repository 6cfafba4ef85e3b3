//! The device memory of arrays, including rounding by the pool and the device.

use super::Footprint;
use super::plan_array::PlanArray;
use crate::cache::size_class::SizeClasses;
use crate::pool::Pool;
use vrampool_backend::Backend;

/// The size of memory after rounding.
#[derive(Debug, Clone)]
pub(crate) struct Rounding {
    classes: SizeClasses,
    granularity: u64,
    copy_granularity: u64,
    max_allocation: u64,
}

impl Rounding {
    pub(crate) fn new<B: Backend>(pool: &Pool<B>, granularity: u64) -> Self {
        let properties = pool.device().properties();
        Self {
            classes: pool.size_classes(),
            granularity: granularity.max(1),
            copy_granularity: properties.copy_granularity.max(1),
            max_allocation: properties.max_allocation,
        }
    }

    #[cfg(test)]
    pub(crate) fn exact() -> Self {
        Self {
            classes: SizeClasses::Multiple(1),
            granularity: 1,
            copy_granularity: 1,
            max_allocation: u64::MAX,
        }
    }

    /// Returns the bytes to request, so that copies of whole granules stay inside.
    pub(crate) fn request(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.copy_granularity).unwrap_or(u64::MAX)
    }

    /// Returns the bytes that a request takes; `u64::MAX` if it is impossible.
    pub(crate) fn footprint(&self, bytes: u64) -> u64 {
        let class = self.classes.round(self.request(bytes)).filter(|&class| class <= self.max_allocation);
        class.and_then(|class| class.checked_next_multiple_of(self.granularity)).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
pub(crate) struct Demand<'a> {
    pub(crate) arrays: &'a [PlanArray],
    pub(crate) rounding: Rounding,
}

impl Demand<'_> {
    fn sum(&self, bytes: impl Fn(&PlanArray) -> u64) -> u64 {
        self.arrays.iter().map(bytes).fold(0, u64::saturating_add)
    }
}

impl Footprint for Demand<'_> {
    fn chunkable(&self) -> u64 {
        self.sum(|array| if array.layout.is_cut { array.layout.bytes() } else { 0 })
    }

    fn unchunkable(&self, slots: u64) -> u64 {
        self.sum(|array| match array.layout.is_cut {
            true => 0,
            false if array.is_shared() => array.layout.bytes(),
            false => array.layout.bytes().saturating_mul(slots),
        })
    }

    fn held(&self, len: u64, slots: u64) -> u64 {
        self.sum(|array| {
            let one = self.rounding.footprint(array.layout.chunk_bytes(len));
            if array.is_shared() { one } else { one.saturating_mul(slots) }
        })
    }
}
