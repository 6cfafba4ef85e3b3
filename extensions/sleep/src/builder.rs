//! The builder of a sleeper.

use crate::callbacks::{Callbacks, SleepAllocation};
use crate::error::Error;
use crate::offload::Offload;
use crate::progress::SleepProgress;
use crate::shared::Shared;
use crate::sleeper::Sleeper;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool::backend::fork::ForkArc;
use vrampool::{Backend, Ledger, MemoryKind};

/// Builder of a [`Sleeper`].
///
/// ```
/// # use vrampool::{Backend, host::HostDevice};
/// # use vrampool_sleep::{Error, Offload, Sleeper};
/// # fn main() -> Result<(), Error> {
/// # let device = HostDevice::new();
/// # if device.virtual_memory().is_none() { return Ok(()) }
/// # let stream = device.create_stream()?;
/// let sleeper = Sleeper::builder(&device).limit(64 << 20).offload(Offload::Pageable).build()?;
/// let block = sleeper.allocate(1 << 20, &stream)?;
/// assert!(sleeper.allocate_tagged(64 << 20, "other", &stream).is_err(), "one limit for all tags");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct SleeperBuilder<B: Backend> {
    device: B,
    name: String,
    limit: Option<u64>,
    kind: MemoryKind,
    offload: Offload,
    chunk_bytes: u64,
    callbacks: Callbacks,
}

impl<B: Backend> Sleeper<B> {
    /// Creates a sleeper without a limit.
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
            name: "sleeper".into(),
            limit: None,
            kind: device.properties().preferred_placement().into(),
            offload: Offload::Pinned,
            chunk_bytes: 256 << 20,
            callbacks: Callbacks::default(),
        }
    }

    /// Its name in metrics. Default: `sleeper`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The largest number of bytes of device memory for all tags together; sleeping tags use none. Default:
    /// `None`, no limit but the device's.
    pub fn limit(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.limit = bytes.into();
        self
    }

    /// The kind of memory. Default: the device's preferred placement.
    pub fn memory(mut self, kind: impl Into<MemoryKind>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets the storage for contents of tags that are kept. Default: [`Offload::Pinned`].
    pub fn offload(mut self, offload: Offload) -> Self {
        self.offload = offload;
        self
    }

    /// The most bytes that are mapped as one piece, rounded up to the device's granularity. Use a smaller
    /// value for drivers that fail to map one large piece.
    ///
    /// Default: 256 MiB.
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = bytes;
        self
    }

    /// Adds a function that is called with each allocated block. It is not called for failed requests.
    pub fn on_malloc(mut self, told: impl Fn(&SleepAllocation<'_>) + Send + Sync + 'static) -> Self {
        self.callbacks.on_malloc.push(Box::new(told));
        self
    }

    /// Adds a function that is called with each block before it is freed, once for each call of
    /// [`on_malloc`](Self::on_malloc).
    pub fn on_free(mut self, told: impl Fn(&SleepAllocation<'_>) + Send + Sync + 'static) -> Self {
        self.callbacks.on_free.push(Box::new(told));
        self
    }

    /// Adds a function that is called after each piece that a sleep or a wake copies, on its thread.
    ///
    /// Allocations of other threads wait meanwhile: the function must not wait for a thread that allocates. In the function
    /// no memory can be put to sleep or woken ([`Error::Busy`]), and that of the sleep or wake is asleep.
    pub fn on_progress(mut self, told: impl Fn(SleepProgress) + Send + Sync + 'static) -> Self {
        self.callbacks.on_progress.push(Box::new(told));
        self
    }

    /// Creates the sleeper. Allocates no memory.
    ///
    /// # Errors
    /// [`Error::NoVirtualMemory`]; [`Error::Limit`] for a limit below the device's granularity; [`Error::Arena`] when
    /// the device fails, or maps no memory of this kind.
    pub fn build(self) -> Result<Sleeper<B>, Error> {
        static SLEEPERS: AtomicU64 = AtomicU64::new(0);
        let Some(memory) = self.device.virtual_memory() else {
            return Err(Error::NoVirtualMemory { device: self.device.id() });
        };
        let granularity_bytes = memory.granularity(self.kind)?;
        if let Some(limit_bytes) = self.limit.filter(|limit| *limit < granularity_bytes) {
            return Err(Error::Limit { limit_bytes, granularity_bytes });
        }
        let chunk_bytes = self.chunk_bytes.max(1).checked_next_multiple_of(granularity_bytes);
        let chunk_bytes = chunk_bytes.unwrap_or(u64::MAX - u64::MAX % granularity_bytes);
        let shared = Shared {
            // Relaxed: only distinctness matters.
            id: SLEEPERS.fetch_add(1, Ordering::Relaxed),
            name: self.name,
            device: self.device,
            kind: self.kind,
            limit: self.limit,
            offload: self.offload,
            ledger: Ledger::new(self.limit),
            chunk_bytes,
            arenas: Mutex::new(BTreeMap::new()),
            changing: Mutex::new(()),
            callbacks: self.callbacks,
            counts: Mutex::default(),
        };
        Ok(Sleeper { shared: ForkArc::new(shared) })
    }
}
