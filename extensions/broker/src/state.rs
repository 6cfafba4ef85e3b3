//! The state that a broker shares with its clients and plans.

use crate::client::Client;
use crate::error::BrokerError;
use crate::id::{ArrayId, ClientId};
use crate::partition::Partition;
use crate::plan_array::PlanArray;
use crate::request::{ChunkLayout, Queued};
use crate::share::Shares;
use crate::staging::Staging;
use crate::stats::{BrokerCounts, BrokerStats, ClientStats, LastFigures, RegisteredClient};
use parking_lot::{Mutex, MutexGuard, ReentrantMutex, ReentrantMutexGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vrampool::figures::Group as _;
use vrampool::{Buffer, Pool};
use vrampool_backend::spi::Ledger;
use vrampool_backend::{Backend, fork, logging};

#[derive(Debug)]
pub(crate) struct BrokerCore<B: Backend> {
    pub(crate) device: B,
    pub(crate) settings: Settings,
    pub(crate) pinned: Ledger,
    pub(crate) staging: Staging<B>,
    pub(crate) spilled: Ledger,
    pub(crate) in_memory: Ledger,
    /// The memory of its clients, a child of `parent`.
    pub(crate) pool: Pool<B>,
    /// The pool that it is a client of.
    pub(crate) parent: Pool<B>,
    /// The lock of commits, held for a whole commit including driver calls; the lock of `state` never is.
    pub(crate) turn: ReentrantMutex<()>,
    pub(crate) turn_waits: AtomicU64,
    pub(crate) state: Mutex<State<B>>,
    /// Final figures for publishers.
    pub(crate) last: Arc<OnceLock<LastFigures>>,
}

impl<B: Backend> Drop for BrokerCore<B> {
    fn drop(&mut self) {
        if Arc::strong_count(&self.last) > 1 {
            let figures = LastFigures { stats: self.stats(), clients: self.clients_by_name() };
            // Nothing else sets it.
            let _ = self.last.set(figures);
        }
    }
}

/// Settings that do not change.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) total: u64,
    pub(crate) granularity: u64,
    pub(crate) reserve: u64,
    pub(crate) spill_directory: PathBuf,
}

#[derive(Debug)]
pub(crate) struct State<B: Backend> {
    pub(crate) shares: Shares,
    pub(crate) clients: BTreeMap<ClientId, Entry<B>>,
    pub(crate) groups: BTreeMap<String, Group<B>>,
    /// Counts pieces of work: the most recently active client has the highest number.
    pub(crate) clock: u64,
    /// Counters except `turn_waits` and those of `staging`.
    pub(crate) counts: BrokerCounts,
    /// Counters of deregistered clients by name, for publishers, because a counter never falls. At most
    /// [`MOST_ENDED_CLIENTS`].
    pub(crate) ended: BTreeMap<String, ClientStats>,
}

/// Names of deregistered clients that are remembered. Beyond that all are forgotten: their series end.
pub(crate) const MOST_ENDED_CLIENTS: usize = 1024;

/// The state of a client.
#[derive(Debug)]
pub(crate) struct Entry<B: Backend> {
    pub(crate) client: Client,
    pub(crate) queue: Vec<Queued>,
    /// The committed requests.
    pub(crate) requests: Vec<Queued>,
    /// The grant, unless a run uses it.
    pub(crate) memory: Vec<Held<B>>,
    /// The figures that are counted: the bytes that it holds, also during a run, their peak, evictions and chunks.
    pub(crate) stats: ClientStats,
    pub(crate) last_work: u64,
}

/// Clients that commit together.
#[derive(Debug)]
pub(crate) struct Group<B: Backend> {
    /// The maximum number of streams of a run.
    pub(crate) most_streams: usize,
    /// The maximum number of runs per chunk.
    pub(crate) most_runs: u64,
    pub(crate) streams: Vec<B::Stream>,
    pub(crate) grant: Option<Arc<Grant>>,
    pub(crate) is_running: bool,
    /// Whether it plans again after its run.
    pub(crate) is_stale: bool,
    /// Counts invalidations of its plan, so that a pending commit detects them.
    pub(crate) generation: u64,
}

impl<B: Backend> Default for Group<B> {
    fn default() -> Self {
        Self {
            most_streams: 1,
            most_runs: u64::MAX,
            streams: Vec::new(),
            grant: None,
            is_running: false,
            is_stale: false,
            generation: 0,
        }
    }
}

impl<B: Backend> Group<B> {
    /// Invalidates its plan, at once or after the current run.
    pub(crate) fn replan(&mut self) {
        self.generation += 1;
        if self.is_running {
            self.is_stale = true;
        } else {
            self.grant = None;
        }
    }
}

/// The result of a commit.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) partition: Partition,
    /// Chunks on the device at a time.
    pub(crate) slots: usize,
    pub(crate) arrays: Vec<PlanArray>,
}

impl Grant {
    pub(crate) fn has_place<B: Backend>(&self, held: &Held<B>) -> bool {
        self.arrays.iter().any(|array| array.id == held.array)
            && held.slot.is_none_or(|slot| slot < self.slots)
            && (held.len == self.partition.chunk_len() || !held.layout.is_cut)
    }
}

/// Memory of an array: of one stream's chunks, or of all streams.
#[derive(Debug)]
pub(crate) struct Held<B: Backend> {
    pub(crate) client: ClientId,
    pub(crate) array: ArrayId,
    pub(crate) slot: Option<usize>,
    /// Number of runs that it has room for.
    pub(crate) len: u64,
    pub(crate) layout: ChunkLayout,
    pub(crate) footprint: u64,
    pub(crate) buffer: Buffer<B>,
}

impl<B: Backend> BrokerCore<B> {
    pub(crate) fn warn(&self, warning: fmt::Arguments<'_>) {
        logging::warn!("broker {}: {warning}", self.settings.name);
    }

    /// Waits for the lock of commits. A callback, whose thread has it already, gets an error instead of a deadlock.
    pub(crate) fn take_turn(&self) -> Result<ReentrantMutexGuard<'_, ()>, BrokerError> {
        if self.turn.is_owned_by_current_thread() {
            return Err(BrokerError::Reentrant);
        }
        Ok(self.turn.try_lock().unwrap_or_else(|| {
            // Relaxed: a statistic.
            self.turn_waits.fetch_add(1, Ordering::Relaxed);
            self.turn.lock()
        }))
    }

    /// Returns the state; `None` in a forked child.
    pub(crate) fn state_of_parent(&self) -> Option<MutexGuard<'_, State<B>>> {
        (!fork::is_forked()).then(|| self.state.lock())
    }

    pub(crate) fn stats(&self) -> BrokerStats {
        let Self { settings, pinned, staging, .. } = self;
        let state = self.state.lock();
        let (clients, held, counts) = (state.clients.len(), state.held(), state.counts);
        drop(state);
        let blocks = staging.blocks();
        let (staging_waits, retained) = (blocks.waits, blocks.retained_bytes());
        drop(blocks);
        BrokerStats {
            clients,
            held_bytes: held,
            idle_bytes: self.pool.stats().idle_bytes,
            budget_bytes: [&self.pool, &self.parent].iter().filter_map(|pool| pool.limit()).min(),
            reserve_bytes: settings.reserve,
            staging_bytes: staging.ledger().charged(),
            peak_staging_bytes: staging.ledger().peak(),
            pinned_live_bytes: pinned.charged().saturating_sub(retained),
            pinned_retained_bytes: retained,
            pinned_budget_bytes: pinned.limit().unwrap_or(u64::MAX),
            spilled_bytes: self.spilled.charged(),
            counts: BrokerCounts {
                turn_waits: self.turn_waits.load(Ordering::Relaxed),
                staging_waits,
                ..counts
            },
        }
    }

    /// Returns the figures of clients by name, with the counters of deregistered ones.
    pub(crate) fn clients_by_name(&self) -> BTreeMap<String, ClientStats> {
        let state = self.state.lock();
        let mut clients = state.ended.clone();
        for RegisteredClient { name, stats, .. } in state.registered() {
            clients.entry(name).or_default().merge(&stats);
        }
        clients
    }

    /// Returns the bytes to request, so that copies of whole granules stay inside.
    pub(crate) fn request_bytes(&self, bytes: u64) -> u64 {
        let granule = self.device.properties().copy_granularity.max(1);
        bytes.checked_next_multiple_of(granule).unwrap_or(u64::MAX)
    }

    /// Returns the bytes that a request takes; `u64::MAX` if it is impossible.
    pub(crate) fn footprint(&self, bytes: u64) -> u64 {
        let limit = self.pool.limit().unwrap_or(u64::MAX);
        let class = self.pool.class_of(self.request_bytes(bytes)).filter(|&class| class <= limit);
        class.and_then(|class| class.checked_next_multiple_of(self.settings.granularity)).unwrap_or(u64::MAX)
    }

    /// Allocates memory for `len` runs of an array, accounted to its client.
    pub(crate) fn allocate(
        &self,
        array: &PlanArray,
        slot: Option<usize>,
        len: u64,
        stream: &B::Stream,
    ) -> Result<Held<B>, BrokerError> {
        let bytes = array.layout.chunk_bytes(len);
        let footprint = self.footprint(bytes);
        let buffer = self.pool.allocate(self.request_bytes(bytes), stream)?;
        let PlanArray { client, id: array, layout, .. } = *array;
        let held = Held { client, array, slot, len, layout, footprint, buffer };
        if let Some(entry) = self.state.lock().clients.get_mut(&client) {
            let ClientStats { held_bytes, peak_held_bytes, .. } = &mut entry.stats;
            *held_bytes += held.footprint;
            *peak_held_bytes = (*peak_held_bytes).max(*held_bytes);
        }
        Ok(held)
    }

    /// Releases memory that a client held.
    pub(crate) fn release(&self, held: Held<B>) {
        if let Some(entry) = self.state.lock().clients.get_mut(&held.client) {
            entry.stats.held_bytes -= held.footprint;
        }
        drop(held);
    }
}

impl<B: Backend> Entry<B> {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            queue: Vec::new(),
            requests: Vec::new(),
            memory: Vec::new(),
            stats: ClientStats::default(),
            last_work: 0,
        }
    }

    /// Takes out the memory that is not to be kept. It is dropped without the lock, because it returns to the pool.
    #[must_use]
    pub(crate) fn release(&mut self, mut keeps: impl FnMut(&Held<B>) -> bool) -> Vec<Held<B>> {
        let unwanted: Vec<_> = self.memory.extract_if(.., |held| !keeps(held)).collect();
        self.stats.held_bytes -= unwanted.iter().map(|held| held.footprint).sum::<u64>();
        unwanted
    }
}

impl<B: Backend> State<B> {
    pub(crate) fn members<'a>(
        &'a self,
        group: &'a str,
    ) -> impl Iterator<Item = (ClientId, &'a Entry<B>)> + use<'a, B> {
        self.clients
            .iter()
            .filter(move |(_, entry)| entry.client.group == group)
            .map(|(&id, entry)| (id, entry))
    }

    /// Returns registered clients in order of registration.
    pub(crate) fn registered(&self) -> impl Iterator<Item = RegisteredClient> + '_ {
        self.clients.iter().map(|(&id, entry)| RegisteredClient {
            id,
            name: entry.client.name.clone(),
            group: entry.client.group.clone(),
            stats: self.stats_of(id, entry),
        })
    }

    /// Keeps the counters of a deregistered client, which holds no memory any more.
    pub(crate) fn note_deregistered(&mut self, entry: &Entry<B>) {
        self.ended.entry(entry.client.name.clone()).or_default().count_on(&entry.stats);
        if self.ended.len() > MOST_ENDED_CLIENTS {
            self.ended.clear();
        }
    }

    pub(crate) fn stats_of(&self, client: ClientId, entry: &Entry<B>) -> ClientStats {
        ClientStats {
            proportion: self.shares.proportion(client),
            cap_bytes: self.shares.cap(client),
            queued: entry.queue.len(),
            ..entry.stats
        }
    }

    pub(crate) fn held(&self) -> u64 {
        self.clients.values().map(|entry| entry.stats.held_bytes).sum()
    }

    /// Removes a group without clients. Drop it without the lock, because its streams call the driver.
    #[must_use]
    pub(crate) fn take_empty(&mut self, group: &str) -> Option<Group<B>> {
        let is_unused = self.groups.get(group).is_some_and(|group| !group.is_running);
        if is_unused && self.members(group).next().is_none() { self.groups.remove(group) } else { None }
    }

    /// Returns the bytes that the clients of a group may hold together, and the bytes that they hold. Shares that are
    /// not enforced bound nothing.
    pub(crate) fn cap_and_held(&self, group: &str) -> (u64, u64) {
        let of = |(id, entry): (_, &Entry<B>)| (self.shares.cap(id), entry.stats.held_bytes);
        let add = |(caps, held): (u64, u64), (cap, more)| (caps.saturating_add(cap), held + more);
        self.members(group).map(of).fold((if self.shares.are_enforced() { 0 } else { u64::MAX }, 0), add)
    }

    /// Returns the requests of a group. Queued requests replace earlier ones with the same label.
    pub(crate) fn wanted(&self, group: &str) -> Vec<(ClientId, Vec<Queued>)> {
        let merge = |entry: &Entry<B>| {
            let mut all = entry.requests.clone();
            for queued in &entry.queue {
                let same = |earlier: &Queued| earlier.request.label == queued.request.label;
                match all.iter().position(same) {
                    Some(at) => all[at] = queued.clone(),
                    None => all.push(queued.clone()),
                }
            }
            all
        };
        self.members(group).map(|(id, entry)| (id, merge(entry))).collect()
    }
}

/// Releases the idle memory of a pool, for callers that go on without it: a failure is logged.
pub(crate) fn trim<B: Backend>(pool: &Pool<B>) {
    if let Err(error) = pool.trim() {
        logging::warn!("pool {}: memory is kept that was to be released: {error}", pool.name());
    }
}
