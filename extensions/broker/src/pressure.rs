//! Free device memory, and eviction of idle clients when it is insufficient.

use crate::error::{BrokerError, BrokerWarning};
use crate::id::ClientId;
use crate::share::LimitMode;
use crate::state::{BrokerCore, Entry, Held, InvalidateHook, Settings, State};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use vrampool_backend::{Backend, BackendError, Event, logging};

/// Divisor of a group's cap below which its headroom is little (CuBIE's).
const LITTLE_HEADROOM: u64 = 20;

/// The memory that a client released.
struct Evicted<B: Backend> {
    client: ClientId,
    memory: Vec<Held<B>>,
    hook: Option<InvalidateHook>,
}

impl<B: Backend> BrokerCore<B> {
    /// Returns the bytes of the device that clients may still take: reported free memory and idle memory of
    /// the pool, less the reserve. If the device reports none, the total less the bytes held by clients
    /// counts as free.
    pub(crate) fn device_free(&self) -> Result<u64, BrokerError> {
        let (free, held) = self.free_and_held()?;
        Ok(self.room(free, held))
    }

    /// Returns unused bytes, and bytes that clients hold.
    fn free_and_held(&self) -> Result<(u64, u64), BrokerError> {
        let (pool, held) = {
            let state = self.state.lock();
            (self.pool.read().clone(), state.held())
        };
        let free = match self.device.memory_info() {
            Ok(info) => info.free_bytes.saturating_add(pool.stats().idle_bytes),
            Err(BackendError::Unsupported { .. }) => self.settings.total.saturating_sub(held),
            Err(error) => return Err(error.into()),
        };
        Ok((free, held))
    }

    /// Returns the bytes that clients may take of `free` bytes while they hold `held`. Bytes that a client
    /// releases first must be moved from `held` to `free` before. Added to the result, they would ignore a
    /// reserve that others have taken, and the budget.
    fn room(&self, free: u64, held: u64) -> u64 {
        let Settings { reserve, budget, .. } = self.settings;
        free.saturating_sub(reserve).min(budget.saturating_sub(held))
    }

    /// Returns the total bytes that a group may hold, regardless of its share.
    pub(crate) fn room_for(&self, group: &str) -> Result<u64, BrokerError> {
        let own = self.state.lock().cap_and_held(group).1;
        let (free, held) = self.free_and_held()?;
        Ok(self.room(free.saturating_add(own), held.saturating_sub(own)))
    }

    /// Returns the bytes that a group may take in addition to its memory.
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
            self.warn(&BrokerWarning::LittleHeadroom {
                group: group.to_owned(),
                headroom_bytes: headroom,
                cap_bytes: cap,
            });
        }
        Ok(headroom.min(free))
    }

    /// Returns the bytes that a group holds beyond its shares; 0 while shares are not enforced.
    pub(crate) fn over_shares(&self, group: &str) -> u64 {
        let state = self.state.lock();
        let (cap, held) = state.cap_and_held(group);
        if state.mode == LimitMode::Passive { 0 } else { held.saturating_sub(cap) }
    }

    /// Returns the total bytes that a group may hold, after idle clients released what `request` bytes lack.
    /// The group's own memory counts as free.
    ///
    /// This follows CuBIE's rule, by which a share that is too small leads to chunks and evicts no client,
    /// except that an exact fit evicts no client either. With `all`, idle clients release all that the share
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
            // Memory of others beyond their shares is reclaimed first.
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

    /// Evicts whole clients outside `group` (or all clients if `None`) without pending work, least recently
    /// active first, until `needed` bytes are released. Returns the released bytes. Callbacks run with no
    /// lock but `turn` held.
    pub(crate) fn evict_idle(&self, group: Option<&str>, needed: u64) -> u64 {
        self.evict(needed, |state| idle_clients(state, group))
    }

    /// As [`evict_idle`](Self::evict_idle), only for clients whose group holds more than its shares.
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

    fn evict(&self, needed: u64, victims: impl FnOnce(&State<B>) -> Vec<ClientId>) -> u64 {
        let (mut freed, mut evicted) = (0_u64, Vec::new());
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            for client in victims(state) {
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
            // A logger may call the broker.
            logging::debug!("broker: the memory of {client} is released");
            drop(memory);
            if let Some(hook) = hook
                && let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook()))
            {
                logging::error!(
                    "broker: a callback of {client} panicked; that goes on in the next call for it"
                );
                if let Ok(entry) = self.state.lock().entry(client) {
                    entry.panic = Some(panic);
                }
            }
        }
        freed
    }

    /// Resumes the panic of an invalidation callback of one of these clients, which another client's commit called.
    pub(crate) fn resume_panic(&self, is_theirs: impl Fn(ClientId, &Entry<B>) -> bool) {
        // A second panic of a thread would abort the process.
        if thread::panicking() {
            return;
        }
        let mut state = self.state.lock();
        let mut theirs = state.clients.iter_mut().filter(|(client, entry)| is_theirs(**client, entry));
        let panic = theirs.find_map(|(_, entry)| entry.panic.take());
        drop(state);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Returns idle memory of the pool to the device if its free memory is below the reserve.
    pub(crate) fn keep_reserve(&self) {
        if self.settings.reserve == 0 {
            return;
        }
        if self.device.memory_info().is_ok_and(|info| info.free_bytes < self.settings.reserve) {
            self.trim_pool();
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
        // A failed event belongs to a failed stream, whose work has ended.
        .filter(|(_, entry)| !entry.pending.iter().any(|event| matches!(event.is_complete(), Ok(false))))
        .map(|(&client, entry)| (entry.last_work, client))
        .collect();
    idle.sort_unstable();
    idle.into_iter().map(|(_, client)| client).collect()
}
