//! The device memory of arrays, including rounding by the pool and the device.

use crate::partition::Footprint;
use crate::plan_array::PlanArray;
use vrampool::Pool;
use vrampool_backend::Backend;

/// The size of memory after rounding.
#[derive(Debug, Clone)]
pub(crate) struct Rounding<B: Backend> {
    pool: Pool<B>,
    limit: u64,
    granularity: u64,
    copy_granularity: u64,
}

impl<B: Backend> Rounding<B> {
    pub(crate) fn new(pool: &Pool<B>, granularity: u64) -> Self {
        let copy_granularity = pool.device().properties().copy_granularity.max(1);
        let limit = pool.limit().unwrap_or(u64::MAX);
        Self { pool: pool.clone(), limit, granularity: granularity.max(1), copy_granularity }
    }

    /// Returns the bytes to request, so that copies of whole granules stay inside.
    pub(crate) fn request(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.copy_granularity).unwrap_or(u64::MAX)
    }

    /// Returns the bytes that a request takes; `u64::MAX` if it is impossible.
    pub(crate) fn footprint(&self, bytes: u64) -> u64 {
        let class = self.pool.class_of(self.request(bytes)).filter(|&class| class <= self.limit);
        class.and_then(|class| class.checked_next_multiple_of(self.granularity)).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
pub(crate) struct Demand<'a, B: Backend> {
    pub(crate) arrays: &'a [PlanArray],
    pub(crate) rounding: Rounding<B>,
}

impl<B: Backend> Demand<'_, B> {
    fn sum(&self, bytes: impl Fn(&PlanArray) -> u64) -> u64 {
        self.arrays.iter().map(bytes).fold(0, u64::saturating_add)
    }
}

impl<B: Backend> Footprint for Demand<'_, B> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use vrampool::SizeClasses;
    use vrampool::host::HostDevice;

    #[test]
    fn what_fits_the_device_has_a_footprint() {
        let device = HostDevice::builder().memory_limit(300 << 20).build();
        let pool = Pool::builder(&device).size_classes(SizeClasses::Fixed).limit(300 << 20).build();
        let pool = pool.expect("a pool");
        let rounding = Rounding { copy_granularity: 4, ..Rounding::new(&pool, 2 << 20) };
        for bytes in [(256 << 20) + 1, 257 << 20, 300 << 20] {
            assert_eq!(rounding.footprint(bytes), 300 << 20, "{bytes}");
        }
        assert_eq!(rounding.footprint((300 << 20) + 1), u64::MAX);
        assert_eq!(rounding.footprint(70 << 10), 2 << 20);
    }
}
