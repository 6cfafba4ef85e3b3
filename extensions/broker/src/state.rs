//! The state that a broker shares with its clients and plans.

use crate::allocator::Allocator;
use crate::error::{BrokerError, BrokerWarning};
use crate::footprint::Rounding;
use crate::id::{ArrayId, ClientId, DEFAULT_GROUP};
use crate::partition::Partition;
use crate::plan_array::PlanArray;
use crate::request::{ChunkLayout, Queued};
use crate::response::Response;
use crate::share::{LimitMode, Shares};
use crate::staging::Staging;
use crate::stats::{BrokerCounts, BrokerStats, ClientStats, LastFigures, RegisteredClient};
use crate::turn::Turn;
use crate::warnings::Warnings;
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use vrampool::Buffer;
use vrampool::Pool;
use vrampool_backend::spi::Ledger;
use vrampool_backend::{Backend, logging};

pub(crate) struct BrokerCore<B: Backend> {
    pub(crate) device: B,
    pub(crate) settings: Settings,
    pub(crate) pinned: Ledger,
    pub(crate) staging: Staging<B>,
    pub(crate) spilled: Ledger,
    pub(crate) in_memory: Ledger,
    /// The current pool. Its lock is held only for a copy of the handle.
    pub(crate) pool: RwLock<Pool<B>>,
    /// The lock of commits, held for a whole commit including driver calls; the lock of `state` never is.
    pub(crate) turn: Turn,
    pub(crate) state: Mutex<State<B>>,
    /// Final figures for publishers.
    pub(crate) last: Arc<OnceLock<LastFigures>>,
}

impl<B: Backend> Drop for BrokerCore<B> {
    fn drop(&mut self) {
        if Arc::strong_count(&self.last) > 1 {
            let figures = LastFigures { stats: self.stats(), clients: self.listed_clients() };
            // Nothing else sets it.
            let _ = self.last.set(figures);
        }
    }
}

/// Settings that do not change.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) total: u64,
    pub(crate) granularity: u64,
    pub(crate) reserve: u64,
    pub(crate) budget: u64,
    pub(crate) pinned_max: u64,
    /// The limit on pinned bytes.
    pub(crate) spill_threshold: u64,
    pub(crate) spill_directory: PathBuf,
    pub(crate) warnings: Warnings,
}

pub(crate) type InvalidateHook = Arc<dyn Fn() + Send + Sync>;
pub(crate) type ReadyHook = Arc<dyn Fn(&Response) + Send + Sync>;

#[derive(Debug)]
pub(crate) struct State<B: Backend> {
    pub(crate) allocator: Allocator,
    pub(crate) mode: LimitMode,
    pub(crate) shares: Shares,
    pub(crate) clients: BTreeMap<ClientId, Entry<B>>,
    pub(crate) groups: BTreeMap<String, Group<B>>,
    /// Counts pieces of work: the most recently active client has the highest number.
    pub(crate) clock: u64,
    /// Counters except those of `turn` and `staging`.
    pub(crate) counts: BrokerCounts,
    /// The latest deregistered clients while a publisher watches, oldest first, at most [`DEREGISTERED`].
    pub(crate) deregistered: VecDeque<RegisteredClient>,
}

/// Number of deregistered clients whose final counters are kept for publishers.
pub(crate) const DEREGISTERED: usize = 256;

/// The state of a client.
pub(crate) struct Entry<B: Backend> {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) queue: Vec<Queued>,
    /// The committed requests.
    pub(crate) requests: Vec<Queued>,
    /// The grant, unless a run uses it.
    pub(crate) memory: Vec<Held<B>>,
    /// Bytes that it holds, also during a run.
    pub(crate) held: u64,
    pub(crate) peak: u64,
    pub(crate) last_work: u64,
    pub(crate) in_flight: u64,
    pub(crate) pending: Vec<B::Event>,
    pub(crate) evictions: u64,
    pub(crate) chunks: u64,
    pub(crate) on_invalidate: Option<InvalidateHook>,
    /// A panic of that callback, which goes on in the next call for this client.
    pub(crate) panic: Option<Box<dyn Any + Send>>,
    pub(crate) on_ready: Option<ReadyHook>,
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
    pub(crate) array: ArrayId,
    pub(crate) slot: Option<usize>,
    /// Number of runs that it has room for.
    pub(crate) len: u64,
    pub(crate) layout: ChunkLayout,
    pub(crate) footprint: u64,
    pub(crate) buffer: Buffer<B>,
}

impl<B: Backend> BrokerCore<B> {
    pub(crate) fn warn(&self, warning: &BrokerWarning) {
        self.settings.warnings.warn(warning);
    }

    pub(crate) fn pool(&self) -> (Pool<B>, Rounding<B>) {
        let pool = self.pool.read().clone();
        let rounding = Rounding::new(&pool, self.settings.granularity);
        (pool, rounding)
    }

    /// Releases the idle memory of the pool, for callers that go on without it: a failure is logged.
    pub(crate) fn trim_pool(&self) {
        let pool = self.pool.read().clone();
        if let Err(error) = pool.trim() {
            logging::warn!("pool {}: memory is kept that was to be released: {error}", pool.name());
        }
    }

    pub(crate) fn stats(&self) -> BrokerStats {
        let Self { settings, pinned, staging, turn, .. } = self;
        let state = self.state.lock();
        let (clients, held, counts) = (state.clients.len(), state.held(), state.counts);
        drop(state);
        let (bytes, peak_staging) = staging.bytes();
        let retained = staging.retained_bytes();
        BrokerStats {
            clients,
            held_bytes: held,
            idle_bytes: self.pool().0.stats().idle_bytes,
            budget_bytes: (settings.budget != u64::MAX).then_some(settings.budget),
            reserve_bytes: settings.reserve,
            staging_bytes: bytes,
            peak_staging_bytes: peak_staging,
            pinned_live_bytes: pinned.charged().saturating_sub(retained),
            pinned_retained_bytes: retained,
            pinned_budget_bytes: pinned.limit().unwrap_or(u64::MAX),
            spilled_bytes: self.spilled.charged(),
            counts: BrokerCounts { turn_waits: turn.waits(), staging_waits: staging.waits(), ..counts },
        }
    }

    /// Returns registered clients, and recently deregistered ones while a publisher watches.
    pub(crate) fn listed_clients(&self) -> Vec<RegisteredClient> {
        let state = self.state.lock();
        state.deregistered.iter().cloned().chain(state.registered()).collect()
    }

    /// Allocates memory for `len` runs of an array, accounted to its client.
    pub(crate) fn allocate(
        &self,
        array: &PlanArray,
        slot: Option<usize>,
        len: u64,
        stream: &B::Stream,
    ) -> Result<Held<B>, BrokerError> {
        let (pool, rounding) = self.pool();
        let bytes = array.layout.chunk_bytes(len);
        let footprint = rounding.footprint(bytes);
        let buffer = pool.allocate_kind(rounding.request(bytes), array.kind, stream)?;
        let held = Held { array: array.id, slot, len, layout: array.layout, footprint, buffer };
        if let Some(entry) = self.state.lock().clients.get_mut(&array.client) {
            entry.held += held.footprint;
            entry.peak = entry.peak.max(entry.held);
        }
        Ok(held)
    }

    /// Releases memory that `client` held.
    pub(crate) fn release(&self, client: ClientId, held: Held<B>) {
        if let Some(entry) = self.state.lock().clients.get_mut(&client) {
            entry.held -= held.footprint;
        }
        drop(held);
    }
}

impl<B: Backend> Entry<B> {
    /// Takes out the memory that is not to be kept. It is dropped without the lock, because it returns to the pool.
    #[must_use]
    pub(crate) fn release(&mut self, mut keeps: impl FnMut(&Held<B>) -> bool) -> Vec<Held<B>> {
        let unwanted: Vec<_> = self.memory.extract_if(.., |held| !keeps(held)).collect();
        self.held -= unwanted.iter().map(|held| held.footprint).sum::<u64>();
        unwanted
    }
}

impl<B: Backend> State<B> {
    pub(crate) fn entry(&mut self, client: ClientId) -> Result<&mut Entry<B>, BrokerError> {
        self.clients.get_mut(&client).ok_or(BrokerError::Deregistered(client))
    }

    pub(crate) fn members<'a>(
        &'a self,
        group: &'a str,
    ) -> impl Iterator<Item = (ClientId, &'a Entry<B>)> + use<'a, B> {
        self.clients.iter().filter(move |(_, entry)| entry.group == group).map(|(&id, entry)| (id, entry))
    }

    /// Returns registered clients in order of registration.
    pub(crate) fn registered(&self) -> impl Iterator<Item = RegisteredClient> + '_ {
        self.clients.iter().map(|(&id, entry)| RegisteredClient {
            id,
            name: entry.name.clone(),
            group: entry.group.clone(),
            stats: self.stats_of(id, entry),
        })
    }

    /// Keeps the counters of a deregistered client, which holds no memory any more.
    pub(crate) fn note_deregistered(&mut self, id: ClientId, entry: &Entry<B>) {
        if self.deregistered.len() >= DEREGISTERED {
            self.deregistered.pop_front();
        }
        let Entry { name, group, evictions, chunks, .. } = entry;
        self.deregistered.push_back(RegisteredClient {
            id,
            name: name.clone(),
            group: group.clone(),
            stats: ClientStats { evictions: *evictions, chunks: *chunks, ..ClientStats::default() },
        });
    }

    pub(crate) fn stats_of(&self, client: ClientId, entry: &Entry<B>) -> ClientStats {
        ClientStats {
            proportion: self.shares.proportion(client),
            cap_bytes: self.shares.cap(client),
            held_bytes: entry.held,
            peak_held_bytes: entry.peak,
            evictions: entry.evictions,
            chunks: entry.chunks,
            queued: entry.queue.len(),
        }
    }

    pub(crate) fn held(&self) -> u64 {
        self.clients.values().map(|entry| entry.held).sum()
    }

    /// Returns the bytes that the clients of a group may hold together, and the bytes that they hold.
    pub(crate) fn cap_and_held(&self, group: &str) -> (u64, u64) {
        self.members(group).fold((0, 0), |(caps, held), (id, entry)| {
            (u64::saturating_add(caps, self.shares.cap(id)), held + entry.held)
        })
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

impl<B: Backend> fmt::Debug for Entry<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("group", &self.group)
            .field("held", &self.held)
            .field("queued", &self.queue.len())
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> fmt::Debug for BrokerCore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("device", &self.device.id())
            .field("total", &self.settings.total)
            .field("state", &*self.state.lock())
            .finish_non_exhaustive()
    }
}

/// Returns the group if it is not running, so that its settings may change.
pub(super) fn idle<'a, B: Backend>(
    group: &'a mut Group<B>,
    name: &str,
) -> Result<&'a mut Group<B>, BrokerError> {
    if group.is_running { Err(BrokerError::Busy { group: name.to_owned() }) } else { Ok(group) }
}

/// Returns the group name, or the default.
pub(super) fn group_name(name: &str) -> String {
    (if name.is_empty() { DEFAULT_GROUP } else { name }).to_owned()
}
