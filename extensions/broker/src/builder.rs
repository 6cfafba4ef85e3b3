//! The builder of a broker.

use crate::error::BrokerError;
use crate::handle::Broker;
use crate::share::Shares;
use crate::spill_directory;
use crate::staging::{BlockBounds, Staging, pinned_bytes_from_environment};
use crate::state::{BrokerCore, Settings, State};
use crate::stats::BrokerCounts;
use parking_lot::{Mutex, ReentrantMutex};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use vrampool::{Pool, SizeClasses, Source};
use vrampool_backend::fork::ForkArc;
use vrampool_backend::spi::Ledger;
use vrampool_backend::spi::host_memory;
use vrampool_backend::{Backend, DeviceKind};

/// The default size of one staging block. (CuBIE's are up to 64 MiB.)
const STAGING_BLOCK: u64 = 16 << 20;
/// Part of the host's memory that may be pinned, and above which an array goes to a file (as in CuBIE).
const HOST_FRACTION: f64 = 0.8;
/// The smallest staging block, bytes.
const SMALLEST_BLOCK: u64 = 64 << 10;

/// Builder of a [`Broker`].
///
/// ```
/// # use vrampool::{Pool, host::HostDevice};
/// # use vrampool_broker::Broker;
/// let pool = Pool::builder(&HostDevice::new()).limit(1 << 30).build()?;
/// let broker = Broker::builder(&pool)
///     .reserve(64 << 20)
///     .build()?;
/// # Ok::<(), vrampool_broker::BrokerError>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct BrokerBuilder<B: Backend> {
    pool: Pool<B>,
    name: String,
    reserve: u64,
    budget: Option<u64>,
    granularity: Option<u64>,
    staging_block: u64,
    staging_bytes: Option<u64>,
    pinned_max: Option<u64>,
    spill_threshold: Option<u64>,
    spill_directory: Option<PathBuf>,
}

impl<B: Backend> Broker<B> {
    /// Returns a builder for a broker whose memory is a [child](Pool::child) of `pool`.
    ///
    /// The pool's limit bounds it together with the pool's other live memory. Idle memory of either serves both. The
    /// child has the pool's cap on idle bytes, its source, hooks and kind of memory. Over [`Source::Virtual`] it takes
    /// memory from the device directly, because chunks are sized to the byte, and pages are not. Closing the pool
    /// closes the child.
    pub fn builder(pool: &Pool<B>) -> BrokerBuilder<B> {
        BrokerBuilder {
            pool: pool.clone(),
            name: "broker".into(),
            reserve: 0,
            budget: None,
            granularity: None,
            staging_block: STAGING_BLOCK,
            staging_bytes: None,
            pinned_max: None,
            spill_threshold: None,
            spill_directory: None,
        }
    }
}

impl<B: Backend> BrokerBuilder<B> {
    /// Sets its name in metrics, which is also that of the child. Default: `broker`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the bytes of the device that are left to other processes. If less than half of them is free, a run releases
    /// memory of the broker. If less than all of them is free, a commit releases idle memory of the whole pool. Over an
    /// arena of fixed size the reserve is 0. Default: 0, which never releases memory.
    pub fn reserve(mut self, bytes: u64) -> Self {
        self.reserve = bytes;
        self
    }

    /// Sets the limit on bytes of all clients together, the child's. Default: `None`, the limit of the pool.
    pub fn budget(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.budget = bytes.into();
        self
    }

    /// Sets the device's allocation granularity in bytes; each array counts as a multiple of it. Default: the
    /// granularity of virtual memory on a discrete device, 1 elsewhere and over an arena.
    pub fn granularity(mut self, bytes: u64) -> Self {
        self.granularity = Some(bytes);
        self
    }

    /// Sets limits on pinned blocks for copies: on one block, rounded to a power of two from 64 KiB on, and
    /// on all. One block is always granted.
    ///
    /// Default: 16 MiB each; `VRAMPOOL_PINNED_STAGING` or 512 MiB in total.
    pub fn staging(mut self, block_bytes: u64, max_bytes: u64) -> Self {
        self.staging_block = block_bytes;
        self.staging_bytes = Some(max_bytes);
        self
    }

    /// Sets the limit on pinned bytes, including staging; at most 0.8 of the host's memory (on Linux, of what the
    /// process [may use](host_memory); elsewhere unknown). Default: the device's total bytes.
    pub fn pinned_max(mut self, bytes: u64) -> Self {
        self.pinned_max = Some(bytes);
        self
    }

    /// Sets the limit on bytes of all [host arrays](Broker::host_array) in memory, pinned and pageable together: an
    /// array that would exceed it is in a file. Blocks for copies have a [limit](Self::staging) of their own. Default:
    /// 0.8 of the host's memory.
    pub fn spill_threshold(mut self, bytes: u64) -> Self {
        self.spill_threshold = Some(bytes);
        self
    }

    /// Sets the directory of such files. Default: the system's directory for temporary files; on Linux
    /// `/var/tmp` if the former is in memory (tmpfs). If the default is missing, only spilling an array
    /// fails.
    pub fn spill_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spill_directory = Some(directory.into());
        self
    }

    /// Creates the broker. Allocates no memory.
    ///
    /// # Errors
    /// [`BrokerError::Setting`] for invalid settings; errors of [`PoolBuilder::build`](vrampool::PoolBuilder::build).
    pub fn build(self) -> Result<Broker<B>, BrokerError> {
        self.check()?;
        let device = self.pool.device().clone();
        let total = total_bytes(&device)?;
        let host = host_memory();
        let pinned = Ledger::new(budget(self.pinned_max.unwrap_or(total), host));
        let spill_threshold = self.spill_threshold.unwrap_or_else(|| budget(u64::MAX, host));
        // A mistake in the environment is found with any arguments.
        let default = pinned_bytes_from_environment()?;
        let staging_bytes = self.staging_bytes.unwrap_or(default);
        let largest = self.staging_block.max(SMALLEST_BLOCK).checked_next_power_of_two().unwrap_or(1 << 63);
        let bounds = BlockBounds { smallest: SMALLEST_BLOCK, largest, grants_first: true };
        let granularity = self.granularity.unwrap_or_else(|| granularity(&self.pool));
        let source = match self.pool.source() {
            Source::Virtual => Source::Direct,
            source => source,
        };
        // Multiples of 512 bytes, because chunks are few and large.
        let pool = self.pool.child(&*self.name).size_classes(SizeClasses::EXACT).max_buffers_per_bucket(None);
        let pool = pool.magazine_bytes(0).cached_class(None).source(source).limit(self.budget).build()?;
        let core = BrokerCore {
            staging: Staging::new(&device, pinned.child(staging_bytes), bounds),
            pinned,
            spilled: Ledger::new(None),
            in_memory: Ledger::new(spill_threshold),
            settings: Settings {
                name: self.name,
                total,
                granularity,
                reserve: if source == Source::Arena { 0 } else { self.reserve },
                spill_directory: self.spill_directory.unwrap_or_else(spill_directory::default),
            },
            turn: ReentrantMutex::new(()),
            turn_waits: AtomicU64::new(0),
            pool,
            parent: self.pool,
            last: Arc::default(),
            state: Mutex::new(State {
                shares: Shares::new(total),
                clients: BTreeMap::new(),
                groups: BTreeMap::new(),
                clock: 0,
                counts: BrokerCounts::default(),
                ended: BTreeMap::new(),
            }),
            device,
        };
        Ok(Broker { core: ForkArc::new(core) })
    }

    fn check(&self) -> Result<(), BrokerError> {
        let refused = |field, reason: &str| Err(BrokerError::Setting { field, reason: reason.into() });
        if self.granularity == Some(0) {
            return refused("granularity", "0 is no granularity; use at least 1");
        }
        if self.spill_threshold == Some(0) {
            return refused("spill_threshold", "0 would spill every array to a file; use at least 1");
        }
        // The default directory is checked only when an array is spilled.
        if self.spill_directory.as_ref().is_some_and(|directory| !directory.is_dir()) {
            return refused("spill_directory", "the directory does not exist; create it or choose another");
        }
        Ok(())
    }
}

/// Returns the limit on pinned bytes: at most `most`, and at most 0.8 of the host's memory if that is known.
fn budget(most: u64, host: Option<u64>) -> u64 {
    host.map_or(most, |bytes| most.min((bytes as f64 * HOST_FRACTION) as u64))
}

/// Returns the device's total bytes, from its properties if the driver does not report them.
fn total_bytes<B: Backend>(device: &B) -> Result<u64, BrokerError> {
    match (device.memory_info(), device.properties().total_bytes) {
        (Ok(info), _) => Ok(info.total_bytes),
        (Err(error), 0) => Err(error.into()),
        (Err(_), bytes) => Ok(bytes),
    }
}

/// Returns the allocation granularity of a discrete device, if the device reports it. An arena is one allocation.
fn granularity<B: Backend>(pool: &Pool<B>) -> u64 {
    let device = pool.device();
    if device.properties().kind != DeviceKind::Discrete || pool.source() == Source::Arena {
        return 1;
    }
    let reported = device.virtual_memory().and_then(|memory| memory.granularity(Default::default()).ok());
    reported.unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::budget;

    #[test]
    fn test_pinned_budget_capped_by_ram_fraction() {
        assert_eq!(budget(10_000, Some(1000)), 800);
        assert_eq!(budget(500, Some(1000)), 500);
        assert_eq!(budget(500, None), 500);
    }
}
