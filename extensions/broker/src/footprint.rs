//! The device memory of a batch, including rounding by the pool and the device.

use crate::partition::Footprint;
use crate::plan_array::PlanArray;
use crate::state::BrokerCore;
use vrampool_backend::Backend;

/// The arrays of a batch, and the broker that rounds their memory.
#[derive(Debug)]
pub(crate) struct Demand<'a, B: Backend> {
    pub(crate) core: &'a BrokerCore<B>,
    pub(crate) arrays: &'a [PlanArray],
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

    fn unchunkable(&self) -> u64 {
        self.sum(|array| if array.layout.is_cut { 0 } else { array.layout.bytes() })
    }

    fn held(&self, len: u64, slots: u64) -> u64 {
        self.sum(|array| {
            let one = self.core.footprint(array.layout.chunk_bytes(len));
            if array.is_shared() { one } else { one.saturating_mul(slots) }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::handle::Broker;
    use vrampool::Pool;
    use vrampool::host::HostDevice;

    #[test]
    fn what_fits_the_device_has_a_footprint() {
        let device = HostDevice::builder().memory_limit(300 << 20).build();
        let pool = Pool::new(&device).expect("a pool");
        let broker = Broker::builder(&pool).budget(300 << 20).granularity(2 << 20).build().expect("a broker");
        for bytes in [(298 << 20) + 1, 299 << 20, 300 << 20] {
            assert_eq!(broker.core.footprint(bytes), 300 << 20, "{bytes}");
        }
        assert_eq!(broker.core.footprint((300 << 20) + 1), u64::MAX);
        assert_eq!(broker.core.footprint(70 << 10), 2 << 20);
    }
}
