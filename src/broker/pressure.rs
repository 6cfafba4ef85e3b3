//! Free device memory, and eviction of idle clients when it is insufficient.

use super::state::{BrokerCore, Held, InvalidateHook, Settings, State};
use super::{BrokerError, ClientId, LimitMode, Warning};
use vrampool_backend::{Backend, BackendError, Event};

/// From which part of its cap a group's headroom is little (CuBIE's).
const LITTLE_HEADROOM: u64 = 20;

/// The memory that a client released.
struct Evicted<B: Backend> {
    client: ClientId,
    memory: Vec<Held<B>>,
    hook: Option<InvalidateHook>,
}

impl<B: Backend> BrokerCore<B> {
    /// Bytes that clients may still take of the device, whoever else uses it: what the device reports as
    /// free, and idle memory of the pool, less the reserve. Where a device does not report, what clients hold
    /// counts against its bytes.
    pub(crate) fn device_free(&self) -> Result<u64, BrokerError> {
        let (free, held) = self.free_and_held()?;
        Ok(self.room(free, held))
    }

    /// (bytes that nobody uses, bytes that clients hold)
    fn free_and_held(&self) -> Result<(u64, u64), BrokerError> {
        let (pool, held) = {
            let state = self.state.lock();
            (self.pool.read().clone(), state.held())
        };
        let free = match self.device.memory_info() {
            Ok(info) => info.free_bytes.saturating_add(pool.stats().bytes_cached),
            Err(BackendError::Unsupported { .. }) => self.settings.total.saturating_sub(held),
            Err(error) => return Err(error.into()),
        };
        Ok((free, held))
    }

    /// What clients may take of `free` bytes while they hold `held`. What one gives back first is to be in
    /// the one and not in the other: added afterwards it would count past a reserve that others have taken,
    /// and past the budget.
    fn room(&self, free: u64, held: u64) -> u64 {
        let Settings { reserve, budget, .. } = self.settings;
        free.saturating_sub(reserve).min(budget.saturating_sub(held))
    }

    /// Bytes that a group may hold in all, whatever its share.
    pub(crate) fn room_for(&self, group: &str) -> Result<u64, BrokerError> {
        let own = self.state.lock().cap_and_held(group).1;
        let (free, held) = self.free_and_held()?;
        Ok(self.room(free.saturating_add(own), held.saturating_sub(own)))
    }

    /// Bytes that a group may take on top of what it has.
    pub(crate) fn available(&self, group: &str) -> Result<u64, BrokerError> {
        let free = self.device_free()?;
        let (mode, (cap, held)) = {
            let state = self.state.lock();
            (state.mode, state.cap_and_held(group))
        };
        if mode == LimitMode::Passive {
            return Ok(free);
        }
        let headroom = cap.saturating_sub(held);
        if headroom < cap / LITTLE_HEADROOM {
            self.warn(&Warning::LittleHeadroom { group: group.to_owned(), headroom, cap });
        }
        Ok(headroom.min(free))
    }

    /// Bytes that a group may hold in all, what it holds counted as free, after idle clients gave back what
    /// `request` bytes truly lack: CuBIE's rule, by which a share that is too small makes chunks and evicts
    /// nobody, but that what fits exactly evicts nobody either. With `all` they give back whatever the share
    /// allows.
    pub(crate) fn make_available(&self, group: &str, request: u64, all: bool) -> Result<u64, BrokerError> {
        let (mode, (cap, own)) = {
            let state = self.state.lock();
            (state.mode, state.cap_and_held(group))
        };
        let is_passive = mode == LimitMode::Passive;
        let (free, held) = self.free_and_held()?;
        let (mut free, mut held) = (free.saturating_add(own), held.saturating_sub(own));
        let Settings { reserve, budget, .. } = self.settings;
        let lacking = |wanted: u64, free: u64, held: u64| {
            let of_device = wanted.saturating_add(reserve).saturating_sub(free);
            of_device.max(wanted.saturating_add(held).saturating_sub(budget))
        };
        let within = request.min(cap);
        if !is_passive && within > self.room(free, held) {
            // What others hold past their shares is not theirs any more.
            let evicted = self.evict_past_share(group, lacking(within, free, held));
            (free, held) = (free.saturating_add(evicted), held.saturating_sub(evicted));
        }
        let wanted = if all && !is_passive { within } else { request };
        if wanted > self.room(free, held) && (all || is_passive || request < cap) {
            let evicted = self.evict_idle(Some(group), lacking(wanted, free, held));
            (free, held) = (free.saturating_add(evicted), held.saturating_sub(evicted));
        }
        let room = self.room(free, held);
        Ok(if is_passive { room } else { room.min(cap) })
    }

    /// Takes back memory of clients outside `group`, of all where it is none, that have no work in flight,
    /// whole clients, the one that worked longest ago first, until it is `needed` bytes. Answers how many it
    /// is. Holds no lock but the turn when it calls them.
    pub(crate) fn evict_idle(&self, group: Option<&str>, needed: u64) -> u64 {
        self.evict(needed, |state| idle_clients(state, group))
    }

    /// The same of clients alone whose group holds more than its shares, which became smaller since.
    fn evict_past_share(&self, group: &str, needed: u64) -> u64 {
        self.evict(needed, |state| {
            let mut idle = idle_clients(state, Some(group));
            idle.retain(|client| {
                let caps = state.clients.get(client).map(|entry| state.cap_and_held(&entry.group));
                caps.is_some_and(|(cap, held)| held > cap)
            });
            idle
        })
    }

    fn evict(&self, needed: u64, who: impl FnOnce(&State<B>) -> Vec<ClientId>) -> u64 {
        let (mut freed, mut evicted) = (0_u64, Vec::new());
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            for client in who(state) {
                if freed >= needed {
                    break;
                }
                let Some(entry) = state.clients.get_mut(&client) else { continue };
                freed += entry.held;
                entry.held = 0;
                entry.evictions += 1;
                state.counts.evictions += 1;
                let memory = std::mem::take(&mut entry.memory);
                evicted.push(Evicted { client, memory, hook: entry.on_invalidate.clone() });
            }
            state.counts.evicted_bytes += freed;
        }
        for Evicted { client, memory, hook } in evicted {
            // A logger may ask the broker.
            log::debug!("broker: {client} gives back what it holds");
            drop(memory);
            if let Some(hook) = hook {
                hook();
            }
        }
        freed
    }

    /// Idle memory of the pool is the device's again where the device has less than the reserve.
    pub(crate) fn keep_reserve(&self) {
        if self.settings.reserve == 0 {
            return;
        }
        if self.device.memory_info().is_ok_and(|info| info.free_bytes < self.settings.reserve) {
            let pool = self.pool.read().clone();
            pool.trim();
        }
    }
}

/// Returns the eviction candidates, in order.
fn idle_clients<B: Backend>(state: &State<B>, group: Option<&str>) -> Vec<ClientId> {
    let is_idle = |group: &str| state.groups.get(group).is_none_or(|group| !group.is_running);
    let mut idle: Vec<_> = state
        .clients
        .iter()
        .filter(|(_, entry)| group.is_none_or(|group| entry.group != group) && is_idle(&entry.group))
        .filter(|(_, entry)| entry.in_flight == 0 && !entry.memory.is_empty())
        // An event that cannot be asked never will be: its stream failed, and so did what was enqueued there.
        .filter(|(_, entry)| !entry.pending.iter().any(|event| matches!(event.is_complete(), Ok(false))))
        .map(|(&client, entry)| (entry.last_work, client))
        .collect();
    idle.sort_unstable();
    idle.into_iter().map(|(_, client)| client).collect()
}
