//! The state that a broker shares with its clients and plans.

use super::footprint::Rounding;
use super::host_array::SpillAccount;
use super::partition::Partition;
use super::request::{ArrayRequest, Queued};
use super::share::Shares;
use super::turn::Turn;
use super::{
    Allocator, ArrayId, BrokerCounts, BrokerError, BrokerStats, ChunkLayout, ClientId, ClientStats,
    LastFigures, LimitMode, RegisteredClient, Response, Role, Warning,
};
use crate::pool::Pool;
use crate::pool::buffer::Buffer;
use crate::staging::Staging;
use crate::staging::ledger::PinnedLedger;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use vrampool_backend::{Backend, MemoryKind};

pub(crate) struct BrokerCore<B: Backend> {
    pub(crate) device: B,
    pub(crate) settings: Settings,
    pub(crate) ledger: PinnedLedger,
    pub(crate) staging: Staging<B>,
    pub(crate) spilled: SpillAccount,
    /// Serves requests now. Behind a lock of its own that is held for no longer than a copy of the handle
    /// takes.
    pub(crate) pool: RwLock<Pool<B>>,
    /// Who plans. Held for a whole commit, calls of the driver included; the state never is.
    pub(crate) turn: Turn,
    pub(crate) state: Mutex<State<B>>,
    /// Its figures when it ended, for publishers.
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
    pub(crate) spill_threshold: u64,
    pub(crate) spill_directory: PathBuf,
    pub(crate) on_warning: Option<WarningHook>,
}

pub(crate) type WarningHook = Arc<dyn Fn(&Warning) + Send + Sync>;
pub(crate) type InvalidateHook = Arc<dyn Fn() + Send + Sync>;
pub(crate) type ReadyHook = Arc<dyn Fn(&Response) + Send + Sync>;

#[derive(Debug)]
pub(crate) struct State<B: Backend> {
    pub(crate) allocator: Allocator,
    pub(crate) mode: LimitMode,
    pub(crate) shares: Shares,
    pub(crate) clients: BTreeMap<ClientId, Entry<B>>,
    pub(crate) groups: BTreeMap<String, Group<B>>,
    /// Counts pieces of work: who worked last has the largest number.
    pub(crate) clock: u64,
    /// Those of the state's; the turn and the staging count for themselves.
    pub(crate) counts: BrokerCounts,
    /// Clients that deregistered last while a publisher watched, the earliest first, at most
    /// [`DEREGISTERED`].
    pub(crate) deregistered: VecDeque<RegisteredClient>,
}

/// Number of deregistered clients whose final counters are kept for publishers.
pub(crate) const DEREGISTERED: usize = 256;

/// A client, as the broker knows it.
pub(crate) struct Entry<B: Backend> {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) queue: Vec<Queued>,
    /// The committed requests.
    pub(crate) requests: Vec<Queued>,
    /// The grant, unless a run uses it.
    pub(crate) memory: Vec<Held<B>>,
    /// Bytes that it holds, in a run too.
    pub(crate) held: u64,
    pub(crate) peak: u64,
    pub(crate) last_work: u64,
    pub(crate) in_flight: u64,
    pub(crate) pending: Vec<B::Event>,
    pub(crate) evictions: u64,
    pub(crate) chunks: u64,
    pub(crate) on_invalidate: Option<InvalidateHook>,
    pub(crate) on_ready: Option<ReadyHook>,
}

/// Clients that work together.
#[derive(Debug)]
pub(crate) struct Group<B: Backend> {
    /// On how many streams it runs at most.
    pub(crate) most_streams: usize,
    /// The maximum number of runs per chunk.
    pub(crate) most_runs: u64,
    pub(crate) streams: Vec<B::Stream>,
    pub(crate) grant: Option<Arc<Grant>>,
    pub(crate) is_running: bool,
    /// Whether it plans anew when its run is over.
    pub(crate) is_stale: bool,
    /// Counts what made it plan anew: a commit under way meanwhile does.
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
    /// Has it plan anew, once no run uses what it has.
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
    /// Whether it has a place for this memory.
    pub(crate) fn has_place<B: Backend>(&self, held: &Held<B>) -> bool {
        self.arrays.iter().any(|array| array.id == held.array)
            && held.slot.is_none_or(|slot| slot < self.slots)
            && (held.len == self.partition.chunk_len() || !held.layout.is_cut)
    }
}

/// An array of a plan.
#[derive(Debug, Clone)]
pub(crate) struct PlanArray {
    pub(crate) id: ArrayId,
    pub(crate) client: ClientId,
    pub(crate) label: String,
    pub(crate) layout: ChunkLayout,
    pub(crate) role: Role,
    pub(crate) kind: MemoryKind,
}

impl PlanArray {
    /// Whether all streams use the same memory.
    pub(crate) fn is_shared(&self) -> bool {
        !self.layout.is_cut && self.role != Role::Scratch
    }

    /// Whether it allows one stream only.
    pub(crate) fn is_sole(&self) -> bool {
        !self.layout.is_cut && self.role.is_downloaded()
    }
}

/// Memory of an array: of one stream's chunks, or of all streams.
#[derive(Debug)]
pub(crate) struct Held<B: Backend> {
    pub(crate) array: ArrayId,
    pub(crate) slot: Option<usize>,
    /// Runs that it is for.
    pub(crate) len: u64,
    pub(crate) layout: ChunkLayout,
    pub(crate) footprint: u64,
    pub(crate) buffer: Buffer<B>,
}

impl<B: Backend> BrokerCore<B> {
    pub(crate) fn warn(&self, warning: &Warning) {
        log::warn!("broker: {warning}");
        if let Some(hook) = &self.settings.on_warning {
            hook(warning);
        }
    }

    /// The current pool, and how it rounds.
    pub(crate) fn pool(&self) -> (Pool<B>, Rounding) {
        let pool = self.pool.read().clone();
        let rounding = Rounding::new(&pool, self.settings.granularity);
        (pool, rounding)
    }

    pub(crate) fn stats(&self) -> BrokerStats {
        let Self { settings, ledger, staging, turn, .. } = self;
        let state = self.state.lock();
        let (clients, held, counts) = (state.clients.len(), state.held(), state.counts);
        drop(state);
        let (bytes, peak_staging) = staging.bytes();
        BrokerStats {
            clients,
            held,
            idle: self.pool().0.stats().bytes_cached,
            budget: settings.budget,
            reserve: settings.reserve,
            staging: bytes,
            peak_staging,
            pinned_live: ledger.live_bytes(),
            pinned_retained: ledger.retained_bytes(),
            pinned_budget: ledger.budget(),
            spilled: self.spilled.bytes(),
            counts: BrokerCounts { turn_waits: turn.waits(), staging_waits: staging.waits(), ..counts },
        }
    }

    /// The registered clients, and those that deregistered last while a publisher watched.
    pub(crate) fn listed_clients(&self) -> Vec<RegisteredClient> {
        let state = self.state.lock();
        state.deregistered.iter().cloned().chain(state.registered()).collect()
    }

    /// Memory for `len` runs of an array, in the name of its client.
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

    /// Gives memory back that `client` held.
    pub(crate) fn release(&self, client: ClientId, held: Held<B>) {
        if let Some(entry) = self.state.lock().clients.get_mut(&client) {
            entry.held -= held.footprint;
        }
        drop(held);
    }
}

impl<B: Backend> State<B> {
    pub(crate) fn entry(&mut self, client: ClientId) -> Result<&mut Entry<B>, BrokerError> {
        self.clients.get_mut(&client).ok_or(BrokerError::Gone(client))
    }

    pub(crate) fn members<'a>(
        &'a self,
        group: &'a str,
    ) -> impl Iterator<Item = (ClientId, &'a Entry<B>)> + use<'a, B> {
        self.clients.iter().filter(move |(_, entry)| entry.group == group).map(|(&id, entry)| (id, entry))
    }

    /// The registered clients, in the order in which they came.
    pub(crate) fn registered(&self) -> impl Iterator<Item = RegisteredClient> + '_ {
        self.clients.iter().map(|(&id, entry)| RegisteredClient {
            id,
            name: entry.name.clone(),
            group: entry.group.clone(),
            stats: self.stats_of(id, entry),
        })
    }

    /// Keeps the counts of a client that deregisters; it holds nothing any more.
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
            cap: self.shares.cap(client),
            held: entry.held,
            peak_held: entry.peak,
            evictions: entry.evictions,
            chunks: entry.chunks,
            queued: entry.queue.len(),
        }
    }

    /// Bytes that all clients hold.
    pub(crate) fn held(&self) -> u64 {
        self.clients.values().map(|entry| entry.held).sum()
    }

    /// (bytes that the clients of a group may hold together, bytes that they hold)
    pub(crate) fn cap_and_held(&self, group: &str) -> (u64, u64) {
        self.members(group).fold((0, 0), |(caps, held), (id, entry)| {
            (u64::saturating_add(caps, self.shares.cap(id)), held + entry.held)
        })
    }

    /// What a group asks for, queued requests in the place of earlier ones of the same label.
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

/// The batch of a group: what the first request says that says more than one.
pub(crate) fn batch(wanted: &[(ClientId, Vec<Queued>)]) -> u64 {
    let mut runs = wanted.iter().flat_map(|(_, queued)| queued).map(|queued| queued.request.runs());
    runs.find(|&runs| runs > 1).unwrap_or(1)
}

/// The arrays of a group.
pub(crate) fn arrays(
    wanted: &[(ClientId, Vec<Queued>)],
    runs: u64,
    default_kind: MemoryKind,
) -> Result<Vec<PlanArray>, BrokerError> {
    let of = |client: ClientId, id: ArrayId, request: &ArrayRequest| {
        Ok(PlanArray {
            id,
            client,
            label: request.label.clone(),
            layout: request.layout(runs)?,
            role: request.role,
            kind: request.kind.unwrap_or(default_kind),
        })
    };
    let each = |(client, queued): &(ClientId, Vec<Queued>)| {
        queued.iter().map(|queued| of(*client, queued.id, &queued.request)).collect::<Vec<_>>()
    };
    wanted.iter().flat_map(each).collect()
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
