//! The driver's memory pools: memory that is allocated and freed in the order of streams.

use super::World;
use crate::code::{Answer, Code};
use crate::detector::Clock;
use crate::objects::handle::Object;
use crate::objects::memory::{Allocation, Area, Source};
use crate::objects::pool::{Block, Free, Pool};
use crate::objects::work::Work;
use std::collections::{BTreeMap, HashSet};

/// Sizes are rounded up to this.
const UNIT: u64 = 512;
/// Pools take memory of the device in multiples of this.
const CHUNK: u64 = 32 << 20;

impl World {
    /// Creates a pool. A limit of 0 is none.
    pub(crate) fn create_pool(
        &mut self,
        device: usize,
        is_default: bool,
        handle_types: i32,
        limit: u64,
    ) -> u64 {
        let number = self.next_number();
        let handle = self.handles.add(Object::Pool(number));
        let pool = Pool {
            handle,
            device,
            is_default,
            handle_types,
            limit: if limit == 0 { u64::MAX } else { limit.saturating_add(CHUNK - 1) / CHUNK * CHUNK },
            is_destroyed: false,
            threshold: 0,
            used: 0,
            used_high: 0,
            reserved: 0,
            reserved_high: 0,
            reuse: [true; 3],
            peers: HashSet::from([device]),
            chunks: BTreeMap::new(),
            live: BTreeMap::new(),
            freed_at_once: 0,
            free: BTreeMap::new(),
        };
        self.pools.insert(number, pool);
        number
    }

    pub(crate) fn default_pool(&mut self, device: usize) -> Answer<u64> {
        if !self.settings.pools {
            return Err(Code::NOT_SUPPORTED);
        }
        if let Some(pool) = self.devices.get(device).ok_or(Code::INVALID_DEVICE)?.default_pool {
            return Ok(pool);
        }
        let pool = self.create_pool(device, true, 0, 0);
        if let Some(device) = self.devices.get_mut(device) {
            device.default_pool = Some(pool);
        }
        Ok(pool)
    }

    pub(crate) fn current_pool(&mut self, device: usize) -> Answer<u64> {
        let default = self.default_pool(device)?;
        Ok(self.devices.get(device).and_then(|device| device.current_pool).unwrap_or(default))
    }

    pub(crate) fn pool(&mut self, number: u64) -> Answer<&mut Pool> {
        self.pools.get_mut(&number).ok_or(Code::INVALID_VALUE)
    }

    /// Takes memory of a pool in the order of a stream.
    pub(crate) fn allocate_in_order(&mut self, pool: u64, bytes: u64, stream: u64) -> Answer<u64> {
        let asked = bytes;
        let bytes =
            bytes.checked_next_multiple_of(UNIT).filter(|&bytes| bytes > 0).ok_or(Code::INVALID_VALUE)?;
        if let Some(capture) = self.capturing(stream)? {
            let context = self.stream(stream)?.context;
            let address = self.allocate(context, bytes, Source::Graph)?;
            self.capture_work(capture, stream, Work::Mark { address, bytes });
            return Ok(address);
        }
        let (address, free) = match self.find_free(pool, bytes, stream) {
            Some(found) => found,
            None => {
                self.grow(pool, bytes)?;
                self.find_free(pool, bytes, stream).ok_or(Code::OUT_OF_MEMORY)?
            }
        };
        let of = self.pool(pool)?;
        of.free.remove(&address);
        if free.bytes > bytes {
            let rest = Free { bytes: free.bytes - bytes, freed: free.freed.clone() };
            of.free.insert(address + bytes, rest);
        }
        of.live.insert(address, Block { bytes, asked });
        of.used += asked;
        of.used_high = of.used.max(of.used_high);
        let waits = match free.freed {
            Some((point, clock)) => {
                self.stream(stream)?.clock.join(&clock);
                vec![point]
            }
            None => Vec::new(),
        };
        self.enqueue(stream, Work::Mark { address, bytes }, waits)?;
        Ok(address)
    }

    /// The smallest free range: first of what this stream or no stream freed, or that is known to be free, then
    /// of any.
    fn find_free(&mut self, pool: u64, bytes: u64, stream: u64) -> Option<(u64, Free)> {
        let of = self.pools.get(&pool)?;
        let rank = |free: &Free| match &free.freed {
            None => 0,
            Some((point, _)) if point.stream == stream || self.is_done(point.stream, point.number) => 0,
            Some(_) => 1,
        };
        let fitting =
            of.free.iter().filter(|(_, free)| free.bytes >= bytes && (rank(free) == 0 || of.reuse[2]));
        let best = fitting.min_by_key(|(_, free)| (rank(free), free.bytes));
        best.map(|(&address, free)| (address, free.clone()))
    }

    fn grow(&mut self, pool: u64, bytes: u64) -> Answer {
        let of = self.pool(pool)?;
        let (device, left) = (of.device, of.limit - of.reserved);
        let size = bytes.checked_next_multiple_of(CHUNK).ok_or(Code::OUT_OF_MEMORY)?;
        if size > left {
            return Err(Code::OUT_OF_MEMORY);
        }
        let context =
            self.devices.get(device).and_then(|device| device.primary).ok_or(Code::INVALID_CONTEXT)?;
        let address = match self.allocate(context, size, Source::Chunk(pool)) {
            // Bytes that do not fit as a whole chunk may fit by themselves.
            Err(Code::OUT_OF_MEMORY) => self.allocate(context, bytes, Source::Chunk(pool))?,
            other => other?,
        };
        let size = self.memory.areas.get(&address).map_or(size, Area::bytes);
        let of = self.pool(pool)?;
        of.chunks.insert(address, size);
        of.free.insert(address, Free { bytes: size, freed: None });
        of.reserved += size;
        of.reserved_high = of.reserved.max(of.reserved_high);
        Ok(())
    }

    /// The pool that a live address is of.
    pub(crate) fn pool_with(&self, address: u64) -> Option<u64> {
        self.pools.iter().find(|(_, pool)| pool.live.contains_key(&address)).map(|(&number, _)| number)
    }

    /// The allocation of a pool around an address: the pool, the first address, and the size that was asked
    /// for.
    pub(crate) fn block(&self, address: u64) -> Option<(u64, u64, u64)> {
        self.pools.iter().find_map(|(&pool, of)| {
            let (&start, block) = of.live.range(..=address).next_back()?;
            (address - start < block.asked).then_some((pool, start, block.asked))
        })
    }

    /// Frees memory of a pool in the order of a stream.
    pub(crate) fn free_in_order(&mut self, address: u64, stream: u64) -> Answer {
        if let Some(capture) = self.capturing(stream)? {
            let bytes = match self.memory.areas.get(&address) {
                Some(Area::Allocation(Allocation { source: Source::Graph, bytes, .. })) => *bytes,
                _ => return Err(Code::INVALID_VALUE),
            };
            self.capture_work(capture, stream, Work::Mark { address, bytes });
            return Ok(());
        }
        let pool = self.pool_with(address).ok_or(Code::INVALID_VALUE)?;
        let Block { bytes, asked } = *self.pool(pool)?.live.get(&address).ok_or(Code::INVALID_VALUE)?;
        let point = self.enqueue(stream, Work::Mark { address, bytes }, Vec::new())?;
        let clock = self.stream(stream)?.clock.clone();
        let of = self.pool(pool)?;
        of.live.remove(&address);
        of.used -= asked;
        of.free.insert(address, Free { bytes, freed: Some((point, clock)) });
        Ok(())
    }

    /// Frees memory of a pool now. The caller has waited for its work.
    pub(crate) fn free_pooled(&mut self, address: u64) -> Answer {
        let pool = self.pool_with(address).ok_or(Code::INVALID_VALUE)?;
        let (backing, start) = match self.memory.area(address) {
            Some((start, Area::Allocation(allocation))) => (allocation.backing, start),
            _ => return Err(Code::INVALID_VALUE),
        };
        let of = self.pool(pool)?;
        let Block { bytes, asked } = of.live.remove(&address).ok_or(Code::INVALID_VALUE)?;
        of.freed_at_once += asked;
        of.free.insert(address, Free { bytes, freed: None });
        self.check_unused(backing, address - start, address - start + bytes, "freed");
        self.shadow.forget_range(backing, address - start, address - start + bytes);
        Ok(())
    }

    /// Joins free ranges whose frees are complete, and releases whole free chunks until `keep` bytes are
    /// left.
    pub(crate) fn trim_pool(&mut self, pool: u64, keep: u64) -> Answer {
        let is_over = |world: &Self, free: &Free| match &free.freed {
            None => true,
            Some((point, _)) => world.is_done(point.stream, point.number),
        };
        let of = self.pool(pool)?;
        of.used -= std::mem::take(&mut of.freed_at_once);
        let of = self.pools.get(&pool).ok_or(Code::INVALID_VALUE)?;
        let mut over: Vec<(u64, u64, Option<Clock>)> = Vec::new();
        for (&address, free) in &of.free {
            if !is_over(self, free) {
                continue;
            }
            let clock = free.freed.as_ref().map(|(_, clock)| clock.clone());
            match over.last_mut() {
                Some((start, bytes, joined))
                    if *start + *bytes == address && !of.chunks.contains_key(&address) =>
                {
                    *bytes += free.bytes;
                    match (joined, clock) {
                        (Some(joined), Some(clock)) => joined.join(&clock),
                        (joined @ None, clock) => *joined = clock,
                        _ => {}
                    }
                }
                _ => over.push((address, free.bytes, clock)),
            }
        }
        for (address, bytes, clock) in over {
            let of = self.pool(pool)?;
            let inside: Vec<u64> = of.free.range(address..address + bytes).map(|(&at, _)| at).collect();
            inside.iter().for_each(|at| {
                of.free.remove(at);
            });
            // The work is complete, and the driver knows it.
            if let Some(clock) = clock {
                self.learn(&clock);
            }
            let of = self.pool(pool)?;
            let is_chunk = of.chunks.get(&address) == Some(&bytes);
            if is_chunk && of.reserved.saturating_sub(bytes) >= keep {
                of.chunks.remove(&address);
                of.reserved -= bytes;
                self.release(address, "released by its pool");
            } else {
                of.free.insert(address, Free { bytes, freed: None });
            }
        }
        self.drop_pool_if_unused(pool);
        Ok(())
    }

    /// After a wait of the host, pools release what is over their threshold.
    pub(crate) fn trim_pools(&mut self) {
        let pools: Vec<(u64, u64)> = self
            .pools
            .iter()
            .filter(|(_, pool)| !pool.free.is_empty())
            .map(|(&pool, of)| (pool, of.threshold))
            .collect();
        for (pool, threshold) in pools {
            let _ = self.trim_pool(pool, threshold);
        }
    }

    pub(crate) fn destroy_pool(&mut self, number: u64) -> Answer {
        let of = self.pool(number)?;
        if of.is_default {
            return Err(Code::INVALID_VALUE);
        }
        of.is_destroyed = true;
        let (handle, device) = (of.handle, of.device);
        self.handles.remove(handle);
        if let Some(device) = self.devices.get_mut(device)
            && device.current_pool == Some(number)
        {
            device.current_pool = None;
        }
        self.trim_pool(number, 0)
    }

    fn drop_pool_if_unused(&mut self, number: u64) {
        if self.pools.get(&number).is_some_and(|pool| pool.is_destroyed && pool.chunks.is_empty()) {
            self.pools.remove(&number);
        }
    }
}
