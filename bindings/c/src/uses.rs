//! The streams that use a block, and its end: what knows both a block and its pool.

use crate::blocks::{self, Held};
use crate::failure::{Failure, Status, check_no_callback};
use crate::memory::Memory;
use crate::recording::Note;
use crate::registry;
use crate::streams::Home;
use std::mem;
use vrampool::any::{AnyDevice, AnyStream};
use vrampool::{Buffer, Error, Stream, internal};

impl Held {
    /// Frees it for the next request. If its users are not all known, this happens once the device has completed
    /// all work.
    #[inline(always)]
    pub(crate) fn free(self) {
        // Before another request may get it.
        self.note_freed();
        if let Memory::Unordered(buffer) = self.memory {
            free_unordered(self.pool, buffer);
        }
    }

    /// As [`free`](Self::free), but returns what is left to be freed, which may wait.
    #[inline(always)]
    pub(crate) fn free_ready(mut self) -> Option<Self> {
        if matches!(self.memory, Memory::Unordered(_)) {
            return Some(self);
        }
        self.note_freed();
        self.memory = match self.memory {
            Memory::Pool(buffer) => Memory::Pool(internal::release_ready(buffer)?),
            memory => memory,
        };
        // The recording knows that it was freed.
        self.note = Note::default();
        Some(self)
    }

    #[inline(always)]
    fn note_freed(&self) {
        if self.note.is_recorded() {
            self.note_freed_surely();
        }
    }

    /// Frees of a pool that is destroyed, or recorded anew, are not recorded.
    #[cold]
    #[inline(never)]
    fn note_freed_surely(&self) {
        let Some(stream) = self.stream_id() else { return };
        let _ = registry::with(self.pool, |pool| {
            pool.recording.freed(self.note, stream);
            Ok(())
        });
    }
}

#[cold]
fn free_unordered(pool: u64, buffer: Buffer<AnyDevice>) {
    let mut buffer = Some(buffer);
    let later = registry::with(pool, |pool| {
        buffer.take().into_iter().for_each(|buffer| pool.captures.keep_unordered(buffer));
        Ok(())
    });
    // Of a pool that was destroyed.
    if let Err(failure) = later.or_else(|_| registry::home_of(pool)?.drain()) {
        log::warn!("a block is freed in the order of its own stream only: {}", failure.text);
    }
}

/// A function that records in a block's pool that a stream uses it.
type Record = fn(&Buffer<AnyDevice>, &AnyStream) -> Result<(), Error>;

/// Work on a stream uses a block, and is behind the one it was allocated for.
pub(crate) fn used_on(
    address: u64,
    stream: usize,
    check: impl Fn(&Held) -> Result<(), Failure>,
) -> Result<(), Failure> {
    with_block(address, |held| {
        check(held)?;
        record(held, stream, Buffer::used_on)
    })
}

/// As [`used_on`], in the order of the program. For callers without errors: after a failure the block is ordered after
/// all work of the device.
pub(crate) fn record_stream(address: u64, stream: usize) -> Result<(), Failure> {
    with_block(address, |held| record_surely(held, stream))
}

/// Calls `act` with a block. Waits for a sleep or a wake without the block, because its callback may use the block.
fn with_block(address: u64, act: impl Fn(&mut Held) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut pool = 0;
    let done = blocks::borrow(address, |held| {
        pool = held.pool;
        internal::refuse_while_changing(|| act(held))
    });
    match done {
        Err(failure) if failure.status == Status::ASLEEP && check_no_callback().is_ok() => {
            let again = registry::with(pool, |pool| {
                let _alone = pool.changing.lock();
                blocks::borrow(address, &act)
            });
            // A pool that was destroyed does not wake.
            unless_asleep(again).or_else(|failure| match failure.status {
                Status::INVALID_HANDLE => Ok(()),
                _ => Err(failure),
            })
        }
        done => unless_asleep(done),
    }
}

/// The sleep waited for all work that used the block, and no work used it since.
pub(crate) fn unless_asleep(recorded: Result<(), Failure>) -> Result<(), Failure> {
    recorded.or_else(|failure| if failure.status == Status::ASLEEP { Ok(()) } else { Err(failure) })
}

fn record(held: &mut Held, stream: usize, record: Record) -> Result<(), Failure> {
    if held.is_plainly_of(stream) {
        return Ok(());
    }
    with_stream_of(held.pool, stream, |stream| {
        if held.stream_id() == Some(stream.id()) {
            return Ok(());
        }
        match &mut held.memory {
            Memory::Captured(captured) => {
                let is_released = captured.home().listed_id().is_none();
                match captured.buffer() {
                    Some(buffer) if is_released => Ok(record(buffer, stream)?),
                    // The program orders the graph's work, which is waited for as a whole when the graph goes.
                    Some(buffer) => Ok(internal::note_use(buffer, stream)?),
                    None => Ok(()),
                }
            }
            Memory::Pool(buffer) | Memory::Unordered(buffer) => Ok(record(buffer, stream)?),
            Memory::Elsewhere => Ok(()),
        }
    })
}

/// As [`record_stream`], of a block that this call has.
pub(crate) fn record_surely(held: &mut Held, stream: usize) -> Result<(), Failure> {
    record(held, stream, Buffer::record_stream).inspect_err(|failure| {
        held.memory = match mem::take(&mut held.memory) {
            Memory::Pool(buffer) if failure.status != Status::ASLEEP => Memory::Unordered(buffer),
            other => other,
        }
    })
}

/// Does something with a stream of a pool's device, also of a pool that was destroyed while the block was
/// not.
fn with_stream_of<T>(
    pool: u64,
    stream: usize,
    mut act: impl FnMut(&AnyStream) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut on_home = |home: &Home| home.with_stream(stream, |stream| Ok(act(stream)));
    match registry::with(pool, |pool| on_home(&pool.home)) {
        Err(failure) if failure.status == Status::INVALID_HANDLE => on_home(&*registry::home_of(pool)?)?,
        acted => acted?,
    }
}
