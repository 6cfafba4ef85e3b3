//! Pinned blocks for staged copies, up to a limit. Without a free block a caller waits or copies directly.
//! The runs of a broker and the [`Stager`](stager::Stager) use them.

pub(crate) mod stager;
#[cfg(test)]
mod tests;

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;
use vrampool::SizeClasses;
use vrampool::environment::{self, Unit, Variable};
use vrampool::{Amount, Error};
use vrampool_backend::AllocationRequest;
use vrampool_backend::spi::{Grant, Ledger};
use vrampool_backend::{Backend, BackendError, Capabilities, Event, Memory, Placement};

/// Sleep between two polls while waiting for another request's copy: events send no notifications.
const NAP: Duration = Duration::from_micros(200);

/// The limit on pinned bytes, unless set (netcl's).
const DEFAULT_BYTES: u64 = 512 << 20;

/// The variables that set it; the first one that is set counts.
const PINNED_STAGING: &[Variable] = &[
    Variable { name: "VRAMPOOL_PINNED_STAGING", unit: Unit::Text },
    Variable { name: "VRAMPOOL_PINNED_STAGING_MB", unit: Unit::Mib },
    Variable { name: "NETCL_PINNED_STAGING_MB", unit: Unit::Mib },
];

/// Returns the limit on pinned bytes, from the environment if it is set there.
pub(crate) fn pinned_bytes_from_environment() -> Result<u64, Error> {
    let amount = environment::amount(PINNED_STAGING)?.unwrap_or(Amount::Bytes(DEFAULT_BYTES));
    Ok(amount.bytes_of(DEFAULT_BYTES).unwrap_or(u64::MAX))
}

/// Block sizes, bytes: eighths of powers of two from the smallest on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockBounds {
    pub(crate) smallest: u64,
    pub(crate) largest: u64,
    /// Whether a first block is granted regardless of the ledger, for callers that need one to proceed.
    pub(crate) grants_first: bool,
}

/// All blocks of a broker or a stager.
#[derive(Debug)]
pub(crate) struct Staging<B: Backend> {
    device: B,
    /// The bytes of all blocks, including those in use.
    ledger: Ledger,
    bounds: BlockBounds,
    blocks: Mutex<Blocks<B>>,
    returned: Condvar,
}

#[derive(Debug)]
pub(crate) struct Blocks<B: Backend> {
    parked: Vec<Parked<B>>,
    /// Requests that had to wait, for their own copies or others'.
    pub(crate) waits: u64,
    /// Whether not even one block could be allocated. Further attempts would be useless driver calls, until this is
    /// cleared.
    pub(crate) is_refused: bool,
}

#[derive(Debug)]
struct Parked<B: Backend> {
    block: PinnedBlock<B>,
    /// The event of the last copy, which may still use it.
    busy: Option<Arc<B::Event>>,
}

/// A pinned block in use.
#[derive(Debug)]
pub(crate) struct PinnedBlock<B: Backend> {
    pub(crate) memory: B::Memory,
    grant: Grant,
}

/// The available memory for a request.
#[derive(Debug)]
pub(crate) enum Answer<B: Backend> {
    Block(PinnedBlock<B>),
    /// All are busy; one will be returned.
    Later,
    /// There is no pinned memory.
    Never,
}

impl<B: Backend> Blocks<B> {
    /// Returns the bytes of blocks that are kept for reuse.
    pub(crate) fn retained_bytes(&self) -> u64 {
        self.parked.iter().map(|parked| parked.block.grant.bytes()).sum()
    }

    /// Takes out the smallest idle block of `size` bytes or up to the next power of two. Otherwise idle blocks of other
    /// sizes are taken out until `excess` bytes are; they are to be dropped without the lock. A block whose event fails
    /// to report is taken out, too, because it would be polled forever.
    fn fit(&mut self, size: u64, mut excess: u64) -> (Option<PinnedBlock<B>>, Vec<PinnedBlock<B>>) {
        let sizes = size..=size.checked_next_power_of_two().unwrap_or(u64::MAX);
        let is_fit = |parked: &Parked<B>| sizes.contains(&parked.block.memory.len());
        let fitting = self
            .parked
            .iter()
            .enumerate()
            .filter(|(_, parked)| is_fit(parked) && is_idle(parked) == Ok(true));
        let smallest = fitting.min_by_key(|(_, parked)| parked.block.memory.len());
        let (mut fit, mut unwanted) = (smallest.map(|(index, _)| index), Vec::new());
        let mut index = 0;
        while fit.is_none() && index < self.parked.len() {
            let parked = &self.parked[index];
            match is_idle(parked) {
                // It became idle after the first search.
                Ok(true) if is_fit(parked) => fit = Some(index),
                Ok(true) if excess == 0 => index += 1,
                Ok(false) => index += 1,
                Ok(true) | Err(_) => {
                    let block = self.parked.swap_remove(index).block;
                    excess = excess.saturating_sub(block.grant.bytes());
                    unwanted.push(block);
                }
            }
        }
        (fit.map(|index| self.parked.swap_remove(index).block), unwanted)
    }
}

impl<B: Backend> Staging<B> {
    /// Creates staging whose blocks are charged to `ledger`, which has nothing else.
    pub(crate) fn new(device: &B, ledger: Ledger, bounds: BlockBounds) -> Self {
        Self {
            device: device.clone(),
            ledger,
            bounds,
            blocks: Mutex::new(Blocks { parked: Vec::new(), waits: 0, is_refused: false }),
            returned: Condvar::new(),
        }
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        self.bounds.largest
    }

    pub(crate) fn blocks(&self) -> MutexGuard<'_, Blocks<B>> {
        self.blocks.lock()
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns a block for up to `bytes` bytes, at most [`block_bytes`](Self::block_bytes), without waiting.
    pub(crate) fn try_block(&self, bytes: u64) -> Result<Answer<B>, BackendError> {
        if !self.device.properties().capabilities.contains(Capabilities::HOST_VISIBLE) {
            return Ok(Answer::Never);
        }
        let BlockBounds { smallest, largest, .. } = self.bounds;
        let sizes = SizeClasses::Geometric { per_doubling: 8, from: smallest };
        let size = sizes.round(bytes.clamp(smallest, largest)).map_or(largest, |size| size.min(largest));
        let most = self.ledger.limit().unwrap_or(u64::MAX);
        let mut blocks = self.blocks.lock();
        let charged = self.ledger.charged();
        let (fit, unwanted) = blocks.fit(size, charged.saturating_add(size).saturating_sub(most));
        let is_refused = blocks.is_refused;
        drop(blocks);
        // Blocks are dropped without the lock, because that calls the driver.
        drop(unwanted);
        if let Some(block) = fit {
            return Ok(Answer::Block(block));
        }
        if is_refused && charged == 0 {
            return Ok(Answer::Never);
        }
        let mut made = self.make(size);
        if matches!(&made, Err(error) if error.is_out_of_memory() && charged > 0) {
            // Idle blocks of other sizes may hold the missing memory.
            if self.trim() > 0 || self.ledger.charged() == 0 {
                made = self.make(size);
            }
        }
        match made {
            Ok(block) => Ok(Answer::Block(block)),
            Err(error) if error.is_out_of_memory() => {
                let has_others = self.ledger.charged() > 0;
                self.blocks.lock().is_refused = !has_others;
                Ok(if has_others { Answer::Later } else { Answer::Never })
            }
            Err(error) => Err(error),
        }
    }

    /// Allocates a block of `size` bytes. Fails with out of memory also if the ledger is full, except for the only
    /// block if the bounds grant it.
    fn make(&self, size: u64) -> Result<PinnedBlock<B>, BackendError> {
        // Two threads do not both have the only block.
        let blocks = self.blocks.lock();
        let is_forced = self.bounds.grants_first && self.ledger.charged() == 0;
        let grant = match self.ledger.reserve(size) {
            Err(error) if is_forced && error.is_out_of_memory() => self.ledger.force(size),
            grant => grant?,
        };
        drop(blocks);
        let memory = self.device.allocate(&AllocationRequest::new(size, Placement::HostVisible))?;
        Ok(PinnedBlock { memory, grant })
    }

    /// Waits briefly for a returned block.
    pub(crate) fn wait(&self) {
        let mut blocks = self.blocks.lock();
        self.returned.wait_for(&mut blocks, NAP);
    }

    /// Puts back a block that a copy before `busy` may still use.
    pub(crate) fn park(&self, block: PinnedBlock<B>, busy: Option<Arc<B::Event>>) {
        self.blocks.lock().parked.push(Parked { block, busy });
        self.returned.notify_all();
    }

    /// Puts back a block after the event of its copy. A copy that failed may still use it, so it is dropped.
    pub(crate) fn finish<E>(
        &self,
        block: PinnedBlock<B>,
        copied: Result<B::Event, E>,
    ) -> Result<Arc<B::Event>, E> {
        let event = Arc::new(copied?);
        self.park(block, Some(Arc::clone(&event)));
        Ok(event)
    }

    /// Releases idle blocks to the device. Returns the number of bytes.
    pub(crate) fn trim(&self) -> u64 {
        // A block that fails to report is kept until a block is next needed.
        let is_idle = |parked: &mut Parked<B>| is_idle(parked) == Ok(true);
        let idle: Vec<_> = self.blocks.lock().parked.extract_if(.., is_idle).collect();
        idle.iter().map(|parked| parked.block.grant.bytes()).sum()
    }
}

fn is_idle<B: Backend>(parked: &Parked<B>) -> Result<bool, BackendError> {
    parked.busy.as_ref().map_or(Ok(true), |busy| busy.is_complete())
}
