//! The public handle of a broker.

use crate::client::Client;
use crate::client_handle::ClientHandle;
use crate::error::BrokerError;
use crate::host_array::{Bytes, HostArray, HostBacking, zero};
use crate::plan::Plan;
use crate::spilled::Spilled;
use crate::state::{BrokerCore, Group, trim};
use crate::stats::{BrokerStats, RegisteredClient};
use vrampool::Pool;
use vrampool_backend::AllocationRequest;
use vrampool_backend::fork::ForkArc;
use vrampool_backend::spi::Grant;
use vrampool_backend::{Backend, BackendError, Capabilities, Placement, fork};

/// The maximum number of streams of a run: each has a thread, and memory for a chunk.
const MOST_STREAMS: usize = 1024;

/// Shares a device between clients: see [the module](super). A clone is another handle to the same broker.
///
/// In a [forked](vrampool_backend::fork) child every call of a broker, a client or a plan that can fail
/// returns [`BackendError::Forked`]. Figures are zero, settings their defaults, and drops have no effect.
///
/// ```
/// use vrampool::{Pool, host::HostDevice};
/// use vrampool_broker::{Broker, Client, Share};
/// # fn main() -> Result<(), vrampool_broker::BrokerError> {
/// let broker = Broker::builder(&Pool::new(&HostDevice::new())?).build()?;
/// let solver = broker.register(Client::new("solver").share(Share::Fixed(0.5)))?;
/// assert_eq!(broker.clients()[0].name, "solver");
/// drop(solver); // releases its memory and its share
/// assert!(broker.clients().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Broker<B: Backend> {
    pub(super) core: ForkArc<BrokerCore<B>>,
}

impl<B: Backend> Clone for Broker<B> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone() }
    }
}

impl<B: Backend> Broker<B> {
    /// A client, until the handle is dropped.
    ///
    /// # Errors
    /// [`BrokerError::Share`] when it cannot have its share; nothing was registered then.
    pub fn register(&self, client: Client) -> Result<ClientHandle<B>, BrokerError> {
        ClientHandle::register(&self.core, client)
    }

    /// Grants what the clients of `group` have queued: memory for all of it, or for as many runs at a time as
    /// fit. Nothing queued and all memory there: the same plan again.
    ///
    /// # Errors
    /// [`BrokerError::NothingQueued`], [`BrokerError::Request`] for arrays that do not go together,
    /// [`BrokerError::Chunk`] when it cannot be cut so that it fits, [`BrokerError::Busy`] while the group runs,
    /// [`BrokerError::Changing`] while shares change all the time, [`BrokerError::Reentrant`] from a callback,
    /// [`BrokerError::Memory`] when the device fails. What was queued stays queued; memory that the group had may be
    /// released.
    pub fn commit(&self, group: &str) -> Result<Plan<B>, BrokerError> {
        fork::check()?;
        let _turn = self.core.take_turn()?;
        let grant = self.core.commit(group)?;
        Ok(Plan::new(&self.core, group, grant))
    }

    /// On how many streams a group runs its chunks at most. Default: 1, chunk after chunk. With more, as many
    /// chunks are on the device at a time, each smaller for that. Counts from the next commit on.
    ///
    /// # Errors
    /// [`BrokerError::Setting`] for 0, and for more than 1024: each has one thread during a run;
    /// [`BrokerError::Busy`].
    pub fn set_streams(&self, group: &str, streams: usize) -> Result<(), BrokerError> {
        fork::check()?;
        if !(1..=MOST_STREAMS).contains(&streams) {
            let reason = format!("a run uses 1 to {MOST_STREAMS} streams, not {streams}");
            return Err(BrokerError::Setting { field: "streams", reason });
        }
        self.set(group, |group| std::mem::replace(&mut group.most_streams, streams) != streams)
    }

    /// How many runs a chunk of a group has at most, though more would fit: with as much in one chunk as
    /// there is, nothing is copied while something is computed. Default: as many as fit. Counts from the next
    /// commit on.
    ///
    /// # Errors
    /// [`BrokerError::Setting`] for 0; [`BrokerError::Busy`].
    pub fn set_chunk_runs(&self, group: &str, runs: u64) -> Result<(), BrokerError> {
        fork::check()?;
        if runs == 0 {
            let reason = "a chunk has 1 run at least".into();
            return Err(BrokerError::Setting { field: "chunk_runs", reason });
        }
        self.set(group, |group| std::mem::replace(&mut group.most_runs, runs) != runs)
    }

    /// Changes a setting of a group; `change` returns whether it was another one.
    fn set(&self, group: &str, change: impl FnOnce(&mut Group<B>) -> bool) -> Result<(), BrokerError> {
        let mut state = self.core.state.lock();
        let entry = state.groups.entry(group.to_owned()).or_default();
        if entry.is_running {
            return Err(BrokerError::Busy { group: group.to_owned() });
        }
        if change(entry) {
            entry.replan();
        }
        Ok(())
    }

    /// The stream of a group: its own, made when it is first asked for, and no other group's.
    ///
    /// # Errors
    /// Errors that the device reports.
    pub fn stream(&self, group: &str) -> Result<B::Stream, BrokerError> {
        fork::check()?;
        Ok(self.core.streams(group, 1)?.swap_remove(0))
    }

    /// Releases all memory that clients hold and no work uses. Returns the number of bytes.
    ///
    /// # Errors
    /// [`BrokerError::Reentrant`] from a callback of the broker's.
    #[allow(clippy::must_use_candidate, reason = "called for what it does; the figure is extra")]
    pub fn evict_all(&self) -> Result<u64, BrokerError> {
        fork::check()?;
        let _turn = self.core.take_turn()?;
        let freed = self.core.evict_idle(None, u64::MAX);
        trim(&self.core.pool);
        self.core.staging.trim();
        Ok(freed)
    }

    /// Allocates a host array of `bytes` bytes: in a file if arrays in memory would exceed the [spill
    /// threshold](crate::BrokerBuilder::spill_threshold) together, pinned if their limit has room, else pageable.
    ///
    /// # Errors
    /// [`BrokerError::Spill`], [`BrokerError::Memory`].
    pub fn host_array(&self, bytes: u64) -> Result<HostArray<B>, BrokerError> {
        fork::check()?;
        let Ok(in_memory) = self.core.in_memory.reserve(bytes) else {
            return self.spilled(bytes);
        };
        match self.pinned(bytes, false)? {
            Some(pinned) => Ok(HostArray::new(pinned, Some(in_memory))),
            None => pageable(bytes, Some(in_memory)),
        }
    }

    /// As [`host_array`](Self::host_array), with the given backing, and regardless of the spill threshold and the
    /// limit on pinned bytes. Arrays in memory count for both.
    ///
    /// # Errors
    /// As [`host_array`](Self::host_array); pinned ones also when the device refuses, has no pinned memory,
    /// or is asked for 0 bytes.
    pub fn host_array_in(&self, bytes: u64, backing: HostBacking) -> Result<HostArray<B>, BrokerError> {
        fork::check()?;
        let in_memory = || Some(self.core.in_memory.force(bytes));
        match backing {
            HostBacking::Pinned if bytes == 0 => {
                Err(BackendError::invalid("bytes", "pinned memory is 1 byte at least").into())
            }
            HostBacking::Pinned => {
                let pinned = self.pinned(bytes, true)?;
                let pinned = pinned.ok_or_else(|| BackendError::unsupported("pinned memory"))?;
                Ok(HostArray::new(pinned, in_memory()))
            }
            HostBacking::Pageable => pageable(bytes, in_memory()),
            HostBacking::File => self.spilled(bytes),
        }
    }

    fn spilled(&self, bytes: u64) -> Result<HostArray<B>, BrokerError> {
        let directory = &self.core.settings.spill_directory;
        let file = Spilled::create(directory, bytes, &self.core.spilled)?;
        Ok(HostArray::new(Bytes::File(file), None))
    }

    /// Pinned memory, if the limit has room, perhaps after unused blocks were released, and the device grants it.
    fn pinned(&self, len: u64, force: bool) -> Result<Option<Bytes<B>>, BrokerError> {
        let core = &self.core;
        let has_any = core.device.properties().capabilities.contains(Capabilities::HOST_VISIBLE);
        if len == 0 || !has_any {
            return Ok(None);
        }
        let granule = core.device.properties().copy_granularity.max(1);
        let bytes = len.checked_next_multiple_of(granule).unwrap_or(len);
        let reserve = || core.pinned.reserve(bytes).ok();
        let grant = reserve().or_else(|| {
            // Releasing unused blocks makes no room for an array that is larger than the limit.
            if force || core.pinned.limit().is_none_or(|limit| bytes <= limit) {
                core.staging.trim();
            }
            reserve().or_else(|| force.then(|| core.pinned.force(bytes)))
        });
        let Some(grant) = grant else { return Ok(None) };
        match core.device.allocate(&AllocationRequest::new(bytes, Placement::HostVisible)) {
            Ok(memory) => {
                let device = core.device.clone();
                Ok(Some(Bytes::Pinned { memory, len, device, _grant: grant }))
            }
            Err(error) if error.is_out_of_memory() && !force => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the statistics.
    pub fn stats(&self) -> BrokerStats {
        if fork::is_forked() { BrokerStats::default() } else { self.core.stats() }
    }

    /// The clients that are registered, in the order in which they came.
    #[must_use]
    pub fn clients(&self) -> Vec<RegisteredClient> {
        self.core.state_of_parent().map(|state| state.registered().collect()).unwrap_or_default()
    }

    /// Its name, for metrics.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.settings.name
    }

    /// What the device allocates in, bytes: each array of a chunk takes a multiple of it, so that a share of
    /// less holds none.
    #[must_use]
    pub fn granularity(&self) -> u64 {
        self.core.settings.granularity
    }

    /// The device it shares.
    #[must_use]
    pub fn device(&self) -> &B {
        &self.core.device
    }

    /// Returns the pool of its clients' memory, a child of the pool that it was built on.
    #[must_use]
    pub fn pool(&self) -> &Pool<B> {
        &self.core.pool
    }
}

fn pageable<B: Backend>(bytes: u64, in_memory: Option<Grant>) -> Result<HostArray<B>, BrokerError> {
    let mut held = Vec::new();
    zero(&mut held, bytes)?;
    Ok(HostArray::new(Bytes::Pageable(held), in_memory))
}
