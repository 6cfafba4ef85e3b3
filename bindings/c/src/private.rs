//! A private pool and its blocks, and memory that was freed and that device work may still use.

use crate::failure::Failure;
use crate::streams::Home;
use crate::tags::Tagged;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vrampool::any::AnyDevice;
use vrampool::{Buffer, internal};

/// A graph's number, as PyTorch has it.
pub(crate) type Id = (u64, u64);

/// A private pool. Its blocks have handles to it, because its arena keeps their contents asleep.
#[derive(Debug)]
pub(crate) struct Private {
    pub(crate) id: Id,
    /// The tag that it is of.
    pub(crate) above: Arc<Tagged>,
    /// The pool below the tag's.
    pub(crate) own: Arc<Tagged>,
    pub(crate) is_released: AtomicBool,
    pub(crate) home: Arc<Home>,
    /// What its pool has in flight, while the pool lives.
    pub(crate) in_flight: Weak<Mutex<InFlight>>,
    /// How often it was begun and not released: graphs that share it.
    pub(crate) uses: AtomicUsize,
    /// Where all other memory is used, its idle memory serves other requests.
    pub(crate) is_used_on_oom: AtomicBool,
}

/// A live block of a private pool.
#[derive(Debug)]
pub(crate) struct Captured {
    /// `None` only while dropping.
    buffer: Option<Buffer<AnyDevice>>,
    home: Arc<Private>,
}

impl Captured {
    pub(crate) fn new(home: &Arc<Private>, buffer: Buffer<AnyDevice>) -> Self {
        Self { buffer: Some(buffer), home: Arc::clone(home) }
    }

    pub(crate) fn buffer(&self) -> Option<&Buffer<AnyDevice>> {
        self.buffer.as_ref()
    }

    pub(crate) fn home(&self) -> &Arc<Private> {
        &self.home
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        if self.home.listed_id().is_none() {
            self.home.free_later(buffer);
        }
    }
}

impl Private {
    /// Its number, until its graphs are released: a block is then as one of the tag until it is freed.
    pub(crate) fn listed_id(&self) -> Option<Id> {
        // Acquire: pairs with the release of the thread that released it.
        (!self.is_released.load(Ordering::Acquire)).then_some(self.id)
    }

    /// Its pool, for a request of `bytes` bytes.
    pub(crate) fn serving(&self, bytes: u64) -> Result<&Arc<Tagged>, Failure> {
        match self.listed_id() {
            Some(_) if !self.above.is_asleep() => Ok(&self.own),
            Some(_) => Err(self.above.asleep(bytes)),
            None => Err(Failure::invalid("id", &format!("the private pool {:?} was released", self.id))),
        }
    }

    /// Frees a block of the pool once no work of the device uses it.
    fn free_later(self: &Arc<Self>, buffer: Buffer<AnyDevice>) {
        let freed = InFlight { of_graphs: vec![(buffer, Arc::clone(self))], ..InFlight::default() };
        match self.in_flight.upgrade() {
            Some(in_flight) => in_flight.lock().add(freed),
            None => {
                self.home.drain().unwrap_or_else(|failure| not_waited_for(1, &failure));
                freed.release();
            }
        }
    }
}

/// Memory that was freed, and that device work may still use.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Released private pools, whose graphs' last work may be pending.
    pub(crate) released: Vec<Arc<Private>>,
    /// Blocks of released ones that were freed later.
    pub(crate) of_graphs: Vec<(Buffer<AnyDevice>, Arc<Private>)>,
    /// Of no graph; not all streams that use it are known.
    pub(crate) unordered: Vec<Buffer<AnyDevice>>,
}

/// What is free of one pool, and counts as live there.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unordered {
    pub(crate) requested: u64,
    pub(crate) bytes: u64,
    pub(crate) buffers: u64,
}

impl InFlight {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.released.len() + self.of_graphs.len() + self.unordered.len()
    }

    pub(crate) fn add(&mut self, mut other: Self) {
        self.released.append(&mut other.released);
        self.of_graphs.append(&mut other.of_graphs);
        self.unordered.append(&mut other.unordered);
    }

    /// Bytes of released private pools, each once.
    pub(crate) fn of_graphs_bytes(&self) -> u64 {
        let is_beside = |home: &Arc<Private>| !self.released.iter().any(|of| Arc::ptr_eq(of, home));
        let blocks = self.of_graphs.iter().filter(|(_, home)| is_beside(home));
        let pools = self.released.iter().map(|of| of.own.held_bytes());
        pools.chain(blocks.map(|(buffer, _)| buffer.capacity())).sum()
    }

    /// Frees all of it. Returns the bytes that private pools released: what shares a page with a live block stays.
    pub(crate) fn release(self) -> u64 {
        let Self { released: mut pools, of_graphs, unordered } = self;
        let (buffers, homes): (Vec<_>, Vec<_>) = of_graphs.into_iter().unzip();
        pools.extend(homes);
        pools.sort_by_key(Arc::as_ptr);
        pools.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let held = || pools.iter().map(|of| of.own.held_bytes()).sum::<u64>();
        let before = held();
        drop((buffers, unordered));
        pools.iter().for_each(|of| {
            let _ = internal::release_private(&of.own.pool);
        });
        before.saturating_sub(held())
    }

    /// What is of no graph, of a pool by its name.
    pub(crate) fn unordered_of(&self, pool: &str) -> Unordered {
        let of_pool = self.unordered.iter().filter(|buffer| buffer.pool_name() == pool);
        of_pool.fold(Unordered::default(), |sum, buffer| Unordered {
            requested: sum.requested + buffer.len(),
            bytes: sum.bytes + buffer.capacity(),
            buffers: sum.buffers + 1,
        })
    }
}

/// Another program's capture may be active: the next call tries again.
#[cold]
pub(crate) fn not_waited_for(blocks: usize, failure: &Failure) {
    log::warn!("the device was not waited for, {blocks} free blocks stay in flight: {}", failure.text);
}
