//! A private pool and its blocks, and memory that was freed and that device work may still use.

use crate::failure::Failure;
use crate::tags::Tagged;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vrampool::any::AnyDevice;
use vrampool::{Buffer, Source, internal};

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
    /// How often it was begun and not released: graphs that share it.
    pub(crate) uses: AtomicUsize,
    /// Where all other memory is used, its idle memory serves other requests.
    pub(crate) is_used_on_oom: AtomicBool,
}

/// A block of a private pool.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) buffer: Buffer<AnyDevice>,
    pub(crate) home: Arc<Private>,
}

impl Private {
    /// A private pool below that of a tag.
    pub(crate) fn make(id: Id, above: &Arc<Tagged>) -> Result<Self, Failure> {
        // One name for all: metrics add up the children of a name, and programs make graphs again and again.
        let name = format!("{}/graphs", above.pool.name());
        let child = || above.pool.child(name.clone()).private(true);
        // Without addresses for an arena it keeps blocks as they are.
        let pool = child().build().or_else(|_| child().source(Source::Direct).build())?;
        let own = Arc::new(Tagged::new(&above.tag, pool));
        let (uses, [is_released, is_used_on_oom]) = Default::default();
        Ok(Self { id, above: Arc::clone(above), own, is_released, uses, is_used_on_oom })
    }

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
}

/// Memory that was freed, and that device work may still use.
#[derive(Debug)]
pub(crate) enum InFlight {
    /// A released private pool, whose graphs' last work may be pending.
    Pool(Arc<Private>),
    /// A block of a released private pool that was freed later.
    Captured(Captured),
    /// A block of no graph; not all streams that use it are known.
    Unordered(Buffer<AnyDevice>),
}

/// What is free of one pool, and counts as live there.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unordered {
    pub(crate) requested: u64,
    pub(crate) bytes: u64,
    pub(crate) buffers: u64,
}

/// Bytes of released private pools, each once.
pub(crate) fn bytes_of_graphs(freed: &[InFlight]) -> u64 {
    let is_counted = |home: &Arc<Private>| {
        freed.iter().any(|of| matches!(of, InFlight::Pool(pool) if Arc::ptr_eq(pool, home)))
    };
    let bytes = |of: &InFlight| match of {
        InFlight::Pool(pool) => pool.own.held_bytes(),
        InFlight::Captured(block) if !is_counted(&block.home) => block.buffer.capacity(),
        _ => 0,
    };
    freed.iter().map(bytes).sum()
}

/// What is of no graph, of a pool by its name.
pub(crate) fn unordered_of(freed: &[InFlight], pool: &str) -> Unordered {
    freed.iter().fold(Unordered::default(), |sum, of| match of {
        InFlight::Unordered(buffer) if buffer.pool_name() == pool => Unordered {
            requested: sum.requested + buffer.len(),
            bytes: sum.bytes + buffer.capacity(),
            buffers: sum.buffers + 1,
        },
        _ => sum,
    })
}

/// Frees all of it. Returns the bytes that private pools released: what shares a page with a live block stays.
pub(crate) fn release(freed: impl IntoIterator<Item = InFlight>) -> u64 {
    let (mut pools, mut buffers) = (Vec::new(), Vec::new());
    for of in freed {
        match of {
            InFlight::Pool(pool) => pools.push(pool),
            InFlight::Captured(Captured { buffer, home }) => {
                pools.push(home);
                buffers.push(buffer);
            }
            InFlight::Unordered(buffer) => buffers.push(buffer),
        }
    }
    pools.sort_by_key(Arc::as_ptr);
    pools.dedup_by(|one, other| Arc::ptr_eq(one, other));
    let held = || pools.iter().map(|of| of.own.held_bytes()).sum::<u64>();
    let before = held();
    drop(buffers);
    pools.iter().for_each(|of| {
        let _ = internal::release_private(&of.own.pool);
    });
    before.saturating_sub(held())
}

/// Another program's capture may be active: the next call tries again.
#[cold]
pub(crate) fn not_waited_for(blocks: usize, failure: &Failure) {
    log::warn!("the device was not waited for, {blocks} free blocks stay in flight: {}", failure.text);
}
