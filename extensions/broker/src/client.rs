//! Clients of a broker: their settings and their handles.

use crate::error::{BrokerError, BrokerWarning};
use crate::id::{ArrayId, ClientId};
use crate::request::{ArrayRequest, Queued};
use crate::response::Response;
use crate::share::{LimitMode, Share};
use crate::state::{BrokerCore, Entry, Group, InvalidateHook, ReadyHook, group_name, idle};
use crate::stats::ClientStats;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::fork::ForkArc;
use vrampool_backend::{Backend, fork};

/// Settings of a client, for [`Broker::register`](crate::Broker::register).
#[derive(Clone)]
#[must_use]
pub struct Client {
    name: String,
    share: Share,
    group: String,
    on_invalidate: Option<InvalidateHook>,
    on_ready: Option<ReadyHook>,
}

impl Client {
    /// Creates settings with this name, for logs and metrics, an automatic share, and the default group.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            share: Share::Auto,
            group: group_name(""),
            on_invalidate: None,
            on_ready: None,
        }
    }

    /// Sets the part of the device that it may hold. Default: [`Share::Auto`]. Any other share enables
    /// [`LimitMode::Active`].
    pub fn share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Sets the group that it commits with. Default: `default`.
    pub fn group(mut self, group: &str) -> Self {
        self.group = group_name(group);
        self
    }

    /// Sets a function that is called after its memory was evicted, by the thread of another client's commit.
    ///
    /// It may queue requests, but not commit. A plan reallocates memory by itself; the function is for other
    /// state of the client. A panic of it does not end that commit: it goes on in the next call for this client, or in
    /// the next commit or run of its group.
    pub fn on_invalidate(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_invalidate = Some(Arc::new(hook));
        self
    }

    /// Sets a function that is called with the result of each commit of its group, even without own requests.
    /// A panic of it goes on in that commit, after the other clients' functions were called.
    pub fn on_ready(mut self, hook: impl Fn(&Response) + Send + Sync + 'static) -> Self {
        self.on_ready = Some(Arc::new(hook));
        self
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name)
            .field("share", &self.share)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

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
        let handle = Self { core: core.clone(), id, name: client.name };
        let mut state = core.state.lock();
        let warned = state.shares.set(id, client.share);
        let warned = match warned {
            Ok(warned) => warned,
            Err(error) => {
                drop(state);
                return Err(error.into());
            }
        };
        if state.shares.fixed_sum() > 0.0 && client.share != Share::Auto {
            state.mode = LimitMode::Active;
        }
        let group = client.group;
        state.groups.entry(group.clone()).or_default().replan();
        if state.mode == LimitMode::Active {
            // Automatic shares are smaller now.
            state.groups.values_mut().for_each(Group::replan);
        }
        let entry = Entry {
            name: handle.name.clone(),
            group,
            queue: Vec::new(),
            requests: Vec::new(),
            memory: Vec::new(),
            held: 0,
            peak: 0,
            last_work: 0,
            in_flight: 0,
            pending: Vec::new(),
            evictions: 0,
            chunks: 0,
            on_invalidate: client.on_invalidate,
            panic: None,
            on_ready: client.on_ready,
        };
        state.clients.insert(id, entry);
        drop(state);
        handle.warn_of(warned);
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
        self.check()?;
        request.check()?;
        let id = ArrayId::next();
        let mut state = self.core.state.lock();
        let entry = state.entry(self.id)?;
        entry.queue.retain(|queued| queued.request.label != request.label);
        entry.queue.push(Queued { id, request });
        Ok(id)
    }

    /// Removes all queued requests, for example after a commit that did not fit. Committed requests remain;
    /// use [`forget`](Self::forget) for those.
    ///
    /// # Errors
    /// Fails only in a forked child.
    pub fn withdraw(&self) -> Result<(), BrokerError> {
        self.check()?;
        self.core.state.lock().entry(self.id)?.queue.clear();
        Ok(())
    }

    /// Removes the request with this label, queued or committed. Returns whether there was one.
    ///
    /// Its memory is released, at once if the group is not running, and the next commit plans without it.
    ///
    /// # Errors
    /// Fails only in a forked child.
    pub fn forget(&self, label: &str) -> Result<bool, BrokerError> {
        self.check()?;
        let mut state = self.core.state.lock();
        let entry = state.entry(self.id)?;
        let is_label = |queued: &Queued| queued.request.label == label;
        let ids: Vec<_> = entry
            .queue
            .iter()
            .chain(&entry.requests)
            .filter(|queued| is_label(queued))
            .map(|queued| queued.id)
            .collect();
        entry.queue.retain(|queued| !is_label(queued));
        entry.requests.retain(|queued| !is_label(queued));
        let unwanted = entry.release(|held| !ids.contains(&held.array));
        let group = entry.group.clone();
        if !ids.is_empty() {
            state.groups.entry(group).or_default().replan();
        }
        drop(state);
        // Without the lock, because the memory returns to the pool.
        drop(unwanted);
        Ok(!ids.is_empty())
    }

    /// Sets another share. Memory beyond it is released at the next commit of its group, or by the next chunk of its run. Any share but
    /// [`Share::Auto`] enables [`LimitMode::Active`]. An equal share changes nothing.
    ///
    /// # Errors
    /// [`BrokerError::Share`]; the previous share then remains.
    pub fn set_share(&self, share: Share) -> Result<(), BrokerError> {
        self.check()?;
        let mut state = self.core.state.lock();
        let is_new_mode = share != Share::Auto && state.mode != LimitMode::Active;
        let is_new_share = !state.shares.has(self.id, share);
        let warned = if is_new_share { state.shares.set(self.id, share)? } else { None };
        if is_new_mode {
            state.mode = LimitMode::Active;
        }
        if is_new_share || is_new_mode {
            // All automatic shares have changed too.
            state.groups.values_mut().for_each(Group::replan);
        }
        drop(state);
        self.warn_of(warned);
        Ok(())
    }

    /// Moves it to another group. Its memory is released, and its requests are queued there.
    ///
    /// # Errors
    /// [`BrokerError::Busy`] while either group runs.
    pub fn move_to(&self, group: &str) -> Result<(), BrokerError> {
        self.check()?;
        let _turn = self.core.turn.take()?;
        let group = group_name(group);
        let mut state = self.core.state.lock();
        let old = state.entry(self.id)?.group.clone();
        if old == group {
            return Ok(());
        }
        for name in [&old, &group] {
            idle(state.groups.entry(name.clone()).or_default(), name)?.replan();
        }
        let entry = state.entry(self.id)?;
        let memory = std::mem::take(&mut entry.memory);
        entry.held = 0;
        entry.group = group;
        let mut requests = std::mem::take(&mut entry.requests);
        requests.retain(|old| !entry.queue.iter().any(|queued| queued.request.label == old.request.label));
        requests.append(&mut entry.queue);
        entry.queue = requests;
        let parts = &mut *state;
        let emptied = take_empty(&mut parts.groups, &parts.clients, &old);
        drop(state);
        drop((memory, emptied));
        Ok(())
    }

    /// Returns its group.
    #[must_use]
    pub fn group(&self) -> String {
        if fork::is_child() {
            return String::new();
        }
        self.core.state.lock().clients.get(&self.id).map(|entry| entry.group.clone()).unwrap_or_default()
    }

    /// Starts the client's work with its memory, which is not evicted before [`end_work`](Self::end_work). A
    /// plan's run does this itself.
    ///
    /// # Errors
    /// Fails only in a forked child.
    pub fn begin_work(&self) -> Result<(), BrokerError> {
        self.check()?;
        let mut state = self.core.state.lock();
        state.clock += 1;
        let clock = state.clock;
        let entry = state.entry(self.id)?;
        entry.in_flight += 1;
        entry.last_work = clock;
        Ok(())
    }

    /// Ends its work, all enqueued on `stream`: its memory may be evicted once that work is complete.
    ///
    /// # Errors
    /// Errors of the device; the work then still counts as pending.
    pub fn end_work(&self, stream: &B::Stream) -> Result<(), BrokerError> {
        self.check()?;
        let event = self.core.device.record(stream)?;
        let mut state = self.core.state.lock();
        let entry = state.entry(self.id)?;
        entry.pending.retain(|event| matches!(vrampool_backend::Event::is_complete(event), Ok(false)));
        entry.pending.push(event);
        entry.in_flight = entry.in_flight.saturating_sub(1);
        Ok(())
    }

    /// Returns the client's memory figures.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        if fork::is_child() {
            return ClientStats::default();
        }
        let state = self.core.state.lock();
        state.clients.get(&self.id).map(|entry| state.stats_of(self.id, entry)).unwrap_or_default()
    }

    /// Starts a call. A panic of the client's own callback, which was called meanwhile, goes on here.
    fn check(&self) -> Result<(), BrokerError> {
        fork::check()?;
        self.core.resume_panic(|id, _| id == self.id);
        Ok(())
    }

    fn warn_of(&self, sum: Option<f64>) {
        if let Some(sum) = sum {
            self.core.warn(&BrokerWarning::SharesNearlyAll { sum });
        }
    }
}

/// Removes a group without clients. Drop it without the lock, because its streams call the driver.
#[must_use]
pub(super) fn take_empty<B: Backend>(
    groups: &mut BTreeMap<String, Group<B>>,
    clients: &BTreeMap<ClientId, Entry<B>>,
    group: &str,
) -> Option<Group<B>> {
    let is_empty = !clients.values().any(|entry| entry.group == group);
    let is_unused = is_empty && groups.get(group).is_some_and(|group| !group.is_running);
    if is_unused { groups.remove(group) } else { None }
}

impl<B: Backend> Drop for ClientHandle<B> {
    fn drop(&mut self) {
        if fork::is_child() {
            return;
        }
        let mut state = self.core.state.lock();
        let parts = &mut *state;
        parts.shares.remove(self.id);
        let entry = parts.clients.remove(&self.id);
        // A publisher holds another handle of the final figures.
        if let Some(entry) = entry.as_ref().filter(|_| Arc::strong_count(&self.core.last) > 1) {
            parts.note_deregistered(self.id, entry);
        }
        let mut emptied = None;
        if let Some(entry) = &entry {
            if let Some(group) = parts.groups.get_mut(&entry.group) {
                group.replan();
            }
            if parts.mode == LimitMode::Active {
                // Automatic shares are larger now.
                parts.groups.values_mut().for_each(Group::replan);
            }
            emptied = take_empty(&mut parts.groups, &parts.clients, &entry.group);
        }
        drop(state);
        // Without the lock: its memory goes to the pool, its streams to the driver, and values captured by
        // its callbacks may have destructors.
        drop((entry, emptied));
    }
}
