//! The handle of a registered client.

use crate::client::Client;
use crate::error::BrokerError;
use crate::id::{ArrayId, ClientId};
use crate::request::{ArrayRequest, Queued};
use crate::share::Share;
use crate::state::{BrokerCore, Entry, Group};
use crate::stats::ClientStats;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::fork::ForkArc;
use vrampool_backend::{Backend, fork};

/// A registered client. Dropping it releases its memory and its share.
#[derive(Debug)]
#[must_use = "dropping it deregisters the client"]
pub struct ClientHandle<B: Backend> {
    core: ForkArc<BrokerCore<B>>,
    id: ClientId,
    name: String,
}

impl<B: Backend> ClientHandle<B> {
    pub(super) fn register(core: &ForkArc<BrokerCore<B>>, client: Client) -> Result<Self, BrokerError> {
        fork::check()?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only distinctness matters.
        let id = ClientId(NEXT.fetch_add(1, Ordering::Relaxed));
        let handle = Self { core: core.clone(), id, name: client.name.clone() };
        let mut state = core.state.lock();
        let set = state.shares.set(id, client.share);
        if set.is_ok() {
            state.groups.entry(client.group.clone()).or_default().replan();
            if state.shares.are_enforced() {
                // Automatic shares are smaller now.
                state.groups.values_mut().for_each(Group::replan);
            }
            state.clients.insert(id, Entry::new(client));
        }
        drop(state);
        // After an error the handle removes nothing.
        handle.warn_of(set?);
        Ok(handle)
    }

    /// Returns the client's id.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Queues a request for an array, which replaces an earlier one with the same label. The array is
    /// allocated by the next commit of the group.
    ///
    /// # Errors
    /// [`BrokerError::Request`] for an invalid request.
    pub fn queue(&self, request: ArrayRequest) -> Result<ArrayId, BrokerError> {
        fork::check()?;
        request.check()?;
        let id = ArrayId::next();
        let mut state = self.core.state.lock();
        // The client of a handle is registered.
        let Some(entry) = state.clients.get_mut(&self.id) else { return Ok(id) };
        entry.queue.retain(|queued| queued.request.label != request.label);
        entry.queue.push(Queued { id, request });
        Ok(id)
    }

    /// Removes the request with this label, queued or committed. Returns whether there was one.
    ///
    /// Its memory is released, at once if the group is not running, and the next commit plans without it.
    ///
    /// # Errors
    /// Fails only in a forked child.
    pub fn forget(&self, label: &str) -> Result<bool, BrokerError> {
        fork::check()?;
        let mut state = self.core.state.lock();
        let Some(entry) = state.clients.get_mut(&self.id) else { return Ok(false) };
        let mut ids = Vec::new();
        for queue in [&mut entry.queue, &mut entry.requests] {
            let forgotten = queue.extract_if(.., |queued| queued.request.label == label);
            ids.extend(forgotten.map(|queued| queued.id));
        }
        let unwanted = entry.release(|held| !ids.contains(&held.array));
        let group = entry.client.group.clone();
        if !ids.is_empty() {
            state.groups.entry(group).or_default().replan();
        }
        drop(state);
        // Without the lock, because the memory returns to the pool.
        drop(unwanted);
        Ok(!ids.is_empty())
    }

    /// Sets another share. Memory beyond it is released at the next commit of its group, or by the next chunk of its
    /// run. Shares are enforced while a client has another one than [`Share::Auto`]. An equal share changes nothing.
    ///
    /// # Errors
    /// [`BrokerError::Share`]; the previous share then remains.
    pub fn set_share(&self, share: Share) -> Result<(), BrokerError> {
        fork::check()?;
        let mut state = self.core.state.lock();
        if state.shares.has(self.id, share) {
            return Ok(());
        }
        let warned = state.shares.set(self.id, share)?;
        // All automatic shares have changed too.
        state.groups.values_mut().for_each(Group::replan);
        drop(state);
        self.warn_of(warned);
        Ok(())
    }

    /// Returns the client's memory figures.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        let Some(state) = self.core.state_of_parent() else { return ClientStats::default() };
        state.clients.get(&self.id).map(|entry| state.stats_of(self.id, entry)).unwrap_or_default()
    }

    fn warn_of(&self, sum: Option<f64>) {
        if let Some(sum) = sum {
            self.core.warn(format_args!(
                "fixed shares are {sum:.3} of the device: automatic clients have no room"
            ));
        }
    }
}

impl<B: Backend> Drop for ClientHandle<B> {
    fn drop(&mut self) {
        let Some(mut state) = self.core.state_of_parent() else { return };
        let were_enforced = state.shares.are_enforced();
        state.shares.remove(self.id);
        let entry = state.clients.remove(&self.id);
        let mut emptied = None;
        if let Some(entry) = &entry {
            state.note_deregistered(entry);
            if let Some(group) = state.groups.get_mut(&entry.client.group) {
                group.replan();
            }
            if were_enforced {
                // Automatic shares are larger now.
                state.groups.values_mut().for_each(Group::replan);
            }
            emptied = state.take_empty(&entry.client.group);
        }
        drop(state);
        // Without the lock: its memory goes to the pool, its streams to the driver.
        drop((entry, emptied));
    }
}
