//! Blocks on a device without virtual memory: separate allocations, freed by a sleep and reallocated, at
//! other addresses, by a wake.

use super::{BlockState, Offload, SleepReport, SleepState, SleepUsage, WakeReport};
use crate::arena::engine::ArenaError;
use crate::arena::{Stored, can_pin, on_a_stream};
use crate::error::Error;
use crate::pool::Pool;
use crate::pool::buffer::Buffer;
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, Weak};
use vrampool_backend::{Backend, Memory};

/// The blocks of a tag.
#[derive(Debug)]
pub(super) struct SeparateBlocks<B: Backend> {
    core: Arc<SeparateCore<B>>,
}

impl<B: Backend> Clone for SeparateBlocks<B> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

#[derive(Debug)]
struct SeparateCore<B: Backend> {
    /// Keeps no idle memory; its limit is that of all tags.
    pool: Pool<B>,
    /// One sleep, wake or allocation at a time.
    changing: Mutex<()>,
    cells: Mutex<Vec<Weak<Cell<B>>>>,
    /// The kind of backup; unset while it is awake.
    offload: Mutex<Option<Offload>>,
}

/// The location of a block's bytes.
#[derive(Debug)]
struct Cell<B: Backend> {
    held: Mutex<Held<B>>,
    /// Requested bytes, rounded up to the copy granularity.
    bytes: u64,
}

#[derive(Debug)]
enum Held<B: Backend> {
    Here(Arc<Buffer<B>>),
    /// Borrowed for writing.
    Out,
    /// In a pending sleep or wake.
    Changing,
    Asleep(Option<Stored<B>>),
}

/// An allocated block.
#[derive(Debug)]
pub(super) struct SeparateBuffer<B: Backend> {
    cell: Arc<Cell<B>>,
    group: SeparateBlocks<B>,
}

impl<B: Backend> SeparateBlocks<B> {
    pub(super) fn new(pool: &Pool<B>) -> Self {
        let (cells, offload) = (Mutex::new(Vec::new()), Mutex::new(None));
        let core = SeparateCore { pool: pool.clone(), changing: Mutex::new(()), cells, offload };
        Self { core: Arc::new(core) }
    }

    pub(super) fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<SeparateBuffer<B>, Error> {
        let core = &self.core;
        let granularity = core.pool.device().properties().copy_granularity;
        // The pool refuses sizes that overflow here.
        let bytes = bytes.checked_next_multiple_of(granularity).unwrap_or(bytes);
        let _quiet = core.changing.lock();
        if core.offload.lock().is_some() {
            return Err(self.asleep(bytes));
        }
        let buffer = Arc::new(core.pool.allocate(bytes, stream)?);
        let cell = Arc::new(Cell { held: Mutex::new(Held::Here(buffer)), bytes });
        let mut cells = core.cells.lock();
        if cells.len() == cells.capacity() {
            cells.retain(|cell| cell.strong_count() > 0);
        }
        cells.push(Arc::downgrade(&cell));
        Ok(SeparateBuffer { cell, group: self.clone() })
    }

    fn asleep(&self, requested: u64) -> Error {
        Error::Asleep { requested_bytes: requested, live_bytes: self.usage().asleep_bytes }
    }

    fn cells(&self) -> Vec<Arc<Cell<B>>> {
        self.core.cells.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Saves the contents of all blocks; returns `None` if they are asleep.
    pub(super) fn begin_sleep(&self, offload: Offload) -> Result<Option<Falling<'_, B>>, Error> {
        let alone = self.core.changing.lock();
        if self.core.offload.lock().is_some() {
            return Ok(None);
        }
        let mut falling = Falling { core: &self.core, _alone: alone, blocks: Vec::new(), offload };
        for cell in self.cells() {
            let mut held = cell.held.lock();
            match std::mem::replace(&mut *held, Held::Changing) {
                // No further handle can be created from here on.
                Held::Here(buffer) if Arc::strong_count(&buffer) == 1 => {
                    drop(held);
                    falling.blocks.push(Saved { cell, buffer, stored: None });
                }
                other => {
                    *held = other;
                    return Err(ArenaError::Pinned.into());
                }
            }
        }
        falling.save()?;
        Ok(Some(falling))
    }

    /// Allocates memory and restores contents for all blocks; returns `None` if they are awake.
    pub(super) fn begin_wake(&self) -> Result<Option<Waking<'_, B>>, Error> {
        let alone = self.core.changing.lock();
        if self.core.offload.lock().is_none() {
            return Ok(None);
        }
        let mut waking =
            Waking { core: &self.core, _alone: alone, blocks: Vec::new(), mapped: 0, restored: 0 };
        for cell in self.cells() {
            let mut held = cell.held.lock();
            match std::mem::replace(&mut *held, Held::Changing) {
                Held::Asleep(stored) => {
                    drop(held);
                    waking.blocks.push(Restored { cell, stored, buffer: None });
                }
                other => *held = other,
            }
        }
        waking.restore()?;
        Ok(Some(waking))
    }

    pub(super) fn state(&self) -> SleepState {
        match self.core.changing.try_lock() {
            Some(_) if self.core.offload.lock().is_some() => SleepState::Asleep,
            Some(_) => SleepState::Awake,
            None => SleepState::Changing,
        }
    }

    pub(super) fn offload(&self) -> Option<Offload> {
        let _quiet = self.core.changing.lock();
        *self.core.offload.lock()
    }

    pub(super) fn usage(&self) -> SleepUsage {
        let mut usage = SleepUsage::default();
        for cell in self.cells() {
            match &*cell.held.lock() {
                Held::Here(buffer) => {
                    usage.mapped_bytes += buffer.capacity();
                    usage.live_bytes += cell.bytes;
                }
                Held::Out | Held::Changing => {
                    usage.mapped_bytes += cell.bytes;
                    usage.live_bytes += cell.bytes;
                }
                Held::Asleep(stored) => {
                    usage.asleep_bytes += cell.bytes;
                    usage.backup_bytes += stored.as_ref().map_or(0, Stored::bytes);
                }
            }
        }
        usage.address_bytes = usage.mapped_bytes;
        usage
    }
}

impl<B: Backend> SeparateBuffer<B> {
    /// Returns the state, after a pending change is complete.
    fn settled(&self) -> MutexGuard<'_, Held<B>> {
        loop {
            let held = self.cell.held.lock();
            if !matches!(*held, Held::Changing) {
                return held;
            }
            drop(held);
            drop(self.group.core.changing.lock());
        }
    }

    fn asleep(&self) -> Error {
        self.group.asleep(self.cell.bytes)
    }

    /// Returns the bytes that sleep and wake.
    pub(super) fn capacity(&self) -> u64 {
        self.cell.bytes
    }

    pub(super) fn access(&self) -> Result<Arc<Buffer<B>>, Error> {
        let held = self.settled();
        match &*held {
            Held::Here(buffer) => Ok(Arc::clone(buffer)),
            Held::Asleep(_) => {
                drop(held);
                Err(self.asleep())
            }
            // An access for writing was leaked.
            Held::Out | Held::Changing => Err(ArenaError::Pinned.into()),
        }
    }

    pub(super) fn access_mut(&mut self) -> Result<CheckedOut<'_, B>, Error> {
        let mut held = self.settled();
        let refusal = match std::mem::replace(&mut *held, Held::Out) {
            Held::Here(buffer) => match Arc::try_unwrap(buffer) {
                Ok(buffer) => {
                    drop(held);
                    return Ok(CheckedOut { cell: &self.cell, buffer: Some(buffer) });
                }
                Err(buffer) => {
                    // An access was leaked.
                    *held = Held::Here(buffer);
                    ArenaError::Pinned.into()
                }
            },
            other @ Held::Asleep(_) => {
                *held = other;
                drop(held);
                self.asleep()
            }
            other => {
                *held = other;
                ArenaError::Pinned.into()
            }
        };
        Err(refusal)
    }

    pub(super) fn state(&self) -> BlockState {
        match &*self.settled() {
            Held::Asleep(Some(_)) => BlockState::AsleepBackedUp,
            Held::Asleep(None) => BlockState::AsleepDiscarded,
            _ => BlockState::Mapped,
        }
    }

    pub(super) fn address(&self) -> Option<u64> {
        match &*self.cell.held.lock() {
            Held::Here(buffer) => buffer.memory().address(),
            _ => None,
        }
    }
}

/// A block borrowed for writing. A drop returns it.
#[derive(Debug)]
pub(super) struct CheckedOut<'a, B: Backend> {
    cell: &'a Cell<B>,
    /// `None` only while dropping.
    buffer: Option<Buffer<B>>,
}

impl<B: Backend> CheckedOut<'_, B> {
    pub(super) fn get_mut(&mut self) -> &mut Buffer<B> {
        match &mut self.buffer {
            Some(buffer) => buffer,
            None => unreachable!("it is there until it is put back"),
        }
    }
}

impl<B: Backend> Drop for CheckedOut<'_, B> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            *self.cell.held.lock() = Held::Here(Arc::new(buffer));
        }
    }
}

#[derive(Debug)]
struct Saved<B: Backend> {
    cell: Arc<Cell<B>>,
    buffer: Arc<Buffer<B>>,
    stored: Option<Stored<B>>,
}

#[derive(Debug)]
struct Restored<B: Backend> {
    cell: Arc<Cell<B>>,
    stored: Option<Stored<B>>,
    buffer: Option<Buffer<B>>,
}

/// Blocks whose contents are saved, before their memory is released. A drop restores them.
#[derive(Debug)]
pub(super) struct Falling<'a, B: Backend> {
    core: &'a SeparateCore<B>,
    _alone: MutexGuard<'a, ()>,
    blocks: Vec<Saved<B>>,
    offload: Offload,
}

impl<B: Backend> Falling<'_, B> {
    fn save(&mut self) -> Result<(), Error> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let (device, offload) = (self.core.pool.device(), self.offload);
        let mut pins = offload == Offload::Pinned && can_pin(device);
        on_a_stream(device, |stream| {
            for Saved { buffer, stored, .. } in &mut self.blocks {
                let bytes = buffer.len();
                // The only handle. Ordering after all users lets the memory be freed when it is dropped.
                let Some(buffer) = Arc::get_mut(buffer) else { return Err(ArenaError::Pinned.into()) };
                let region = buffer.on_mut(stream)?;
                if offload != Offload::Discard {
                    let stored = stored.insert(Stored::new(device, bytes, &mut pins)?);
                    stored.save(device, stream, region.as_region(), 0)?;
                }
            }
            Ok::<(), Error>(())
        })
    }

    pub(super) fn commit(mut self) -> SleepReport {
        let mut report = SleepReport::default();
        *self.core.offload.lock() = Some(self.offload);
        for Saved { cell, buffer, stored } in self.blocks.drain(..) {
            report.freed_bytes += buffer.capacity();
            match &stored {
                Some(_) => report.backed_up_bytes += cell.bytes,
                None => report.discarded_bytes += cell.bytes,
            }
            *cell.held.lock() = Held::Asleep(stored);
            drop(buffer);
        }
        report
    }
}

impl<B: Backend> Drop for Falling<'_, B> {
    fn drop(&mut self) {
        for Saved { cell, buffer, .. } in self.blocks.drain(..) {
            *cell.held.lock() = Held::Here(buffer);
        }
    }
}

/// Blocks with memory and contents, and still their backups. A drop puts them to sleep.
#[derive(Debug)]
pub(super) struct Waking<'a, B: Backend> {
    core: &'a SeparateCore<B>,
    _alone: MutexGuard<'a, ()>,
    blocks: Vec<Restored<B>>,
    mapped: u64,
    restored: u64,
}

impl<B: Backend> Waking<'_, B> {
    fn restore(&mut self) -> Result<(), Error> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let (device, pool) = (self.core.pool.device(), &self.core.pool);
        on_a_stream(device, |stream| {
            for Restored { cell, stored, buffer } in &mut self.blocks {
                let buffer = buffer.insert(pool.allocate(cell.bytes, stream)?);
                self.mapped += buffer.capacity();
                if let Some(stored) = stored {
                    stored.restore(device, stream, 0, buffer.on_mut(stream)?)?;
                    self.restored += cell.bytes;
                }
            }
            Ok::<(), Error>(())
        })
    }

    pub(super) fn commit(mut self) -> WakeReport {
        *self.core.offload.lock() = None;
        for Restored { cell, buffer, .. } in self.blocks.drain(..) {
            if let Some(buffer) = buffer {
                *cell.held.lock() = Held::Here(Arc::new(buffer));
            }
        }
        WakeReport { mapped_bytes: self.mapped, restored_bytes: self.restored, was_awake: false }
    }
}

impl<B: Backend> Drop for Waking<'_, B> {
    fn drop(&mut self) {
        for Restored { cell, stored, .. } in self.blocks.drain(..) {
            *cell.held.lock() = Held::Asleep(stored);
        }
    }
}
