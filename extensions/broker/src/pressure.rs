//! Free device memory, and eviction of idle clients when it is insufficient.

use crate::error::BrokerError;
use crate::id::ClientId;
use crate::state::{BrokerCore, Entry, trim};
use vrampool::{Source, internal};
use vrampool_backend::{Backend, BackendError, logging};

/// The memory that a group may take, bytes.
#[derive(Debug, Clone, Copy)]
struct Headroom {
    /// Unused bytes: free on the device, unless the pool has an arena of fixed size, and idle in the pool.
    free: u64,
    /// Held by other clients.
    held: u64,
    /// What the limits leave to all clients together: the budget, and those of the pool and above.
    most: u64,
    /// Left to other processes.
    reserve: u64,
}

impl Headroom {
    /// Returns the bytes that clients may take.
    fn bytes(&self) -> u64 {
        let Self { free, held, most, reserve } = self;
        free.saturating_sub(*reserve).min(most.saturating_sub(*held))
    }
}

impl<B: Backend> BrokerCore<B> {
    /// Returns the memory available to the holders of `own` bytes, which count as free. Adding `own` to the room
    /// instead would ignore the limits, and a reserve that others have taken.
    fn headroom(&self, own: u64) -> Result<Headroom, BrokerError> {
        let held = self.state.lock().held();
        let (all, live) = (self.parent.stats(), self.pool.stats().live_bytes);
        // A child's statistics have nothing of an arena of the pool above.
        let arena = self.parent.arena();
        let unused = arena.map_or(0, |arena| arena.reserved_bytes().saturating_sub(arena.used()));
        let idle = all.idle_bytes.saturating_add(unused);
        let free = match self.device.memory_info() {
            // The arena has its memory already.
            _ if self.parent.source() == Source::Arena => idle,
            Ok(info) => info.free_bytes.saturating_add(idle),
            Err(BackendError::Unsupported { .. }) => self.settings.total.saturating_sub(all.live_bytes),
            Err(error) => return Err(error.into()),
        };
        Ok(Headroom {
            free: free.saturating_add(own),
            held: held.saturating_sub(own),
            most: live.saturating_add(internal::room(&self.pool)),
            reserve: self.settings.reserve,
        })
    }

    /// Returns the total bytes that a group may hold, regardless of its share.
    pub(crate) fn room_for(&self, group: &str) -> Result<u64, BrokerError> {
        let own = self.state.lock().cap_and_held(group).1;
        Ok(self.headroom(own)?.bytes())
    }

    /// Returns the bytes that a group holds beyond its shares.
    pub(crate) fn over_shares(&self, group: &str) -> u64 {
        let (cap, held) = self.state.lock().cap_and_held(group);
        held.saturating_sub(cap)
    }

    /// Returns the total bytes that a group may hold, after idle clients released what `request` bytes lack.
    /// The group's own memory counts as free.
    ///
    /// This follows CuBIE's rule, by which a share that is too small leads to chunks and evicts no client,
    /// except that an exact fit evicts no client either. With `all`, idle clients release all that the share
    /// allows.
    pub(crate) fn make_available(&self, group: &str, request: u64, all: bool) -> Result<u64, BrokerError> {
        let (cap, own) = self.state.lock().cap_and_held(group);
        let mut now = self.headroom(own)?;
        let within = request.min(cap);
        // Memory of others beyond their shares is reclaimed first.
        let wanted = if all { within } else { request };
        for (wanted, past_share, may_evict) in [(within, true, true), (wanted, false, all || request < cap)] {
            if may_evict && wanted > now.bytes() {
                let Headroom { free, held, most, reserve } = now;
                let of_device = wanted.saturating_add(reserve).saturating_sub(free);
                let lacking = of_device.max(wanted.saturating_add(held).saturating_sub(most));
                let evicted = self.evict(Some(group), lacking, past_share);
                (now.free, now.held) = (free.saturating_add(evicted), held.saturating_sub(evicted));
            }
        }
        Ok(now.bytes().min(cap))
    }

    /// Evicts whole clients outside `group` (or all clients if `None`) without a run, least recently
    /// active first, until `needed` bytes are released. Returns the released bytes.
    pub(crate) fn evict_idle(&self, group: Option<&str>, needed: u64) -> u64 {
        self.evict(group, needed, false)
    }

    /// With `past_share`, only clients whose group holds more than its shares.
    fn evict(&self, group: Option<&str>, needed: u64, past_share: bool) -> u64 {
        let (mut freed, mut evicted) = (0_u64, Vec::new());
        {
            let mut state = self.state.lock();
            let is_victim = |(_, entry): &(&ClientId, &Entry<B>)| {
                let own = &entry.client.group;
                // A run has the memory of its clients.
                let is_idle = group.is_none_or(|group| own != group) && !entry.memory.is_empty();
                let (cap, held) = state.cap_and_held(own);
                is_idle && (!past_share || held > cap)
            };
            let victims = state.clients.iter().filter(is_victim);
            let mut victims: Vec<_> = victims.map(|(&client, entry)| (entry.last_work, client)).collect();
            victims.sort_unstable();
            for (_, client) in victims {
                if freed >= needed {
                    break;
                }
                let Some(entry) = state.clients.get_mut(&client) else { continue };
                freed += std::mem::take(&mut entry.stats.held_bytes);
                entry.stats.evictions += 1;
                evicted.push((client, std::mem::take(&mut entry.memory)));
                state.counts.evictions += 1;
            }
            state.counts.evicted_bytes += freed;
        }
        for (client, memory) in evicted {
            // A logger may call the broker.
            logging::debug!("broker: the memory of {client} is released");
            drop(memory);
        }
        freed
    }

    /// Returns idle memory of the pool to the device if the device's free memory is below the reserve.
    pub(crate) fn keep_reserve(&self) {
        if self.settings.reserve == 0 {
            return;
        }
        if self.device.memory_info().is_ok_and(|info| info.free_bytes < self.settings.reserve) {
            trim(&self.parent);
        }
    }
}
