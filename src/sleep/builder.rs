//! The builder of a sleeper.

use super::callbacks::{Callbacks, SleepAllocation};
use super::sleeper::{Places, Sleeper, SleeperCore};
use super::{Offload, chunk};
use crate::arena::Allowance;
use crate::cache::size_class::SizeClasses;
use crate::environment;
use crate::error::Error;
use crate::pool::Pool;
use crate::sync::fork_arc::ForkArc;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::{Backend, MemoryKind};

/// Builder of a [`Sleeper`].
///
/// ```
/// # use vrampool::{Backend, host::HostDevice, sleep::{Offload, Sleeper}};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let sleeper = Sleeper::builder(&device).limit(64 << 20).offload(Offload::Pageable).build()?;
/// let block = sleeper.allocate(1 << 20, &stream)?;
/// assert!(sleeper.allocate_tagged("other", 64 << 20, &stream).is_err(), "one limit for all tags");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct SleeperBuilder<B: Backend> {
    device: B,
    limit: Option<u64>,
    kind: MemoryKind,
    offload: Offload,
    chunk_bytes: Option<u64>,
    callbacks: Callbacks,
}

impl<B: Backend> Sleeper<B> {
    /// A sleeper without a limit, as the environment has it.
    ///
    /// # Errors
    /// As [`SleeperBuilder::build`].
    pub fn new(device: &B) -> Result<Self, Error> {
        Self::builder(device).build()
    }

    /// Returns a builder.
    pub fn builder(device: &B) -> SleeperBuilder<B> {
        SleeperBuilder::new(device)
    }
}

impl<B: Backend> SleeperBuilder<B> {
    pub(super) fn new(device: &B) -> Self {
        Self {
            device: device.clone(),
            limit: None,
            kind: device.properties().preferred_placement().into(),
            offload: Offload::Pinned,
            chunk_bytes: None,
            callbacks: Callbacks::default(),
        }
    }

    /// The most bytes of the device's memory, of all tags in all; asleep there are none. Default: no limit
    /// but the device's.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// The kind of memory. Default: what the device prefers.
    pub fn memory(mut self, kind: impl Into<MemoryKind>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets the storage for contents of tags that are kept. Default: [`Offload::Pinned`].
    pub fn offload(mut self, offload: Offload) -> Self {
        self.offload = offload;
        self
    }

    /// The most bytes that are mapped as one piece, rounded up to the device's granularity: smaller for
    /// drivers without one large mapping. Default: `VRAMPOOL_SLEEP_CHUNK_MB` (MiB, decimal), then
    /// `VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE` (MiB, read as vLLM reads it: octal after 0, hexadecimal after 0x,
    /// what it cannot read is the default), then 256 MiB.
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// Called with each block once it is there and can be used. Never called for a request that failed.
    pub fn on_malloc(mut self, told: impl Fn(&SleepAllocation<'_>) + Send + Sync + 'static) -> Self {
        self.callbacks.on_malloc.push(Box::new(told));
        self
    }

    /// Called with each block before it goes, once for each call of [`on_malloc`](Self::on_malloc).
    pub fn on_free(mut self, told: impl Fn(&SleepAllocation<'_>) + Send + Sync + 'static) -> Self {
        self.callbacks.on_free.push(Box::new(told));
        self
    }

    /// Creates the sleeper. Allocates no memory.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a limit below the device's granularity; [`Error::Environment`] for a
    /// variable that cannot be read; [`Error::Backend`] when the device fails.
    pub fn build(self) -> Result<Sleeper<B>, Error> {
        static SLEEPERS: AtomicU64 = AtomicU64::new(0);
        // A device may have virtual memory, and none of this kind.
        let granularity = self.device.virtual_memory().and_then(|memory| memory.granularity(self.kind).ok());
        let places = match granularity {
            Some(granularity) => {
                if let Some(limit) = self.limit.filter(|limit| *limit < granularity) {
                    return Err(Error::Configuration {
                        field: "limit",
                        value: limit.to_string(),
                        reason: format!(
                            "the device maps memory in pieces of {granularity} bytes; leave room for one"
                        ),
                    });
                }
                let chunk_bytes = match self.chunk_bytes {
                    Some(bytes) => chunk::round_up(bytes, granularity),
                    None => chunk::bytes(granularity, &environment::process)?,
                };
                let allowance = Allowance::new(self.limit.unwrap_or(u64::MAX));
                Places::Addresses { allowance, chunk_bytes }
            }
            None => {
                let pool = Pool::builder(&self.device).memory(self.kind).size_classes(SizeClasses::EXACT);
                // What is free goes back at once.
                let pool = pool.max_cached_bytes(0).magazine_bytes(0);
                let pool = if let Some(limit) = self.limit { pool.limit(limit) } else { pool };
                Places::Loose(pool.build()?)
            }
        };
        let core = SleeperCore {
            // Relaxed: only distinctness matters.
            id: SLEEPERS.fetch_add(1, Ordering::Relaxed),
            device: self.device,
            kind: self.kind,
            limit: self.limit,
            offload: self.offload,
            places,
            groups: Mutex::new(BTreeMap::new()),
            changing: Mutex::new(()),
            callbacks: self.callbacks,
        };
        Ok(Sleeper { core: ForkArc::new(core) })
    }
}
