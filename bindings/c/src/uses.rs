//! The streams that use a block, and its end: what knows both a block and its pool.

use crate::blocks::{self, Held};
use crate::failure::{Failure, Status, check_no_callback};
use crate::memory::Memory;
use crate::private::{InFlight, release};
use crate::registry;
use crate::streams::Home;
use std::mem;
use std::sync::Arc;
use vrampool::any::{AnyDevice, AnyStream};
use vrampool::{Buffer, Error, Stream, internal};

/// What a caller states about the block that it frees; unset for any.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) pool: Option<u64>,
    /// Bytes that were asked for.
    pub(crate) bytes: Option<u64>,
}

impl Expected {
    #[inline(always)]
    fn is_right(self, held: &Held) -> bool {
        self.pool.is_none_or(|pool| pool == held.pool)
            && self.bytes.is_none_or(|bytes| bytes == held.memory.requested())
    }

    /// # Errors
    /// [`Status::MISMATCH`], with what is not right.
    pub(crate) fn check(self, held: &Held) -> Result<(), Failure> {
        if self.is_right(held) {
            return Ok(());
        }
        let (pool, bytes) = (held.pool, held.memory.requested());
        let (stated_pool, stated_bytes) = (self.pool.unwrap_or(pool), self.bytes.unwrap_or(bytes));
        let text = format!(
            "the block has {bytes} bytes of pool {pool}; it was freed as {stated_bytes} bytes of pool {stated_pool}"
        );
        Err(Failure::new(Status::MISMATCH, text))
    }
}

/// Frees a block for the next request. A block that may be recorded, of a graph, used on another stream than it was
/// allocated for, or not the expected one is freed by `elsewhere`, or refused.
#[inline(always)]
pub(crate) fn free(
    address: u64,
    stream: usize,
    expected: Expected,
    elsewhere: fn(u64, usize, Expected) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match blocks::remove_plain(address, Some(stream), |held| expected.is_right(held)) {
        Some(buffer) => {
            internal::release(buffer);
            Ok(())
        }
        None => elsewhere(address, stream, expected),
    }
}

/// Frees any block that `check` accepts, in the order of the streams that are known to use it.
pub(crate) fn free_any(address: u64, check: impl Fn(&Held) -> Result<(), Failure>) -> Result<(), Failure> {
    let (held, home) = remove(address, check)?;
    held.free(&home);
    Ok(())
}

/// Removes a block and returns it, with the device of its pool. That is looked up first, because a destroyed pool is
/// known only as long as it has live blocks.
pub(crate) fn remove(
    address: u64,
    check: impl Fn(&Held) -> Result<(), Failure>,
) -> Result<(Held, Arc<Home>), Failure> {
    let home = registry::home_of(blocks::look(address, |held| held.pool)?)?;
    Ok((blocks::remove(address, check)?, home))
}

impl Held {
    /// Frees it for the next request; once the device has completed all work, if its users are not all known or it is
    /// of a released private pool.
    pub(crate) fn free(self, home: &Home) {
        // Before another request may get it.
        if self.note.is_recorded() {
            self.note_freed();
        }
        let freed = match self.memory {
            Memory::Unordered(buffer) => InFlight::Unordered(buffer),
            Memory::Captured(captured) if captured.home.listed_id().is_none() => {
                InFlight::Captured(*captured)
            }
            _ => return,
        };
        let mut freed = Some(freed);
        let kept = registry::with(self.pool, |pool| {
            freed.take().into_iter().for_each(|freed| pool.captures.keep(freed));
            Ok(())
        });
        // Of a pool that was destroyed.
        if let Err(failure) = kept.or_else(|_| home.drain()) {
            log::warn!("a block is freed in the order of its own stream only: {}", failure.text);
        }
        let _ = release(freed);
    }

    /// Frees of a pool that is destroyed, or recorded anew, are not recorded.
    #[cold]
    #[inline(never)]
    fn note_freed(&self) {
        let Some(stream) = self.stream_id() else { return };
        let _ = registry::with(self.pool, |pool| {
            pool.recording.freed(self.note, stream);
            Ok(())
        });
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
    with_block(address, |held, home| {
        check(held)?;
        record(held, home, stream, Buffer::used_on)
    })
}

/// As [`used_on`], in the order of the program. For callers without errors: after a failure the block is ordered after
/// all work of the device.
pub(crate) fn record_stream(address: u64, stream: usize) -> Result<(), Failure> {
    with_block(address, |held, home| record_surely(held, home, stream))
}

/// Calls `act` with a block and the device of its pool. Waits for a sleep or a wake without the block, because its
/// callback may use the block.
fn with_block(address: u64, act: impl Fn(&mut Held, &Home) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut pool = 0;
    let done = blocks::borrow(address, |held| {
        pool = held.pool;
        let home = registry::home_of(pool)?;
        internal::refuse_while_changing(|| act(held, &home))
    });
    match done {
        Err(failure) if failure.status == Status::ASLEEP && check_no_callback().is_ok() => {
            let again = registry::with(pool, |pool| {
                let _alone = pool.changing.lock();
                blocks::borrow(address, |held| act(held, &pool.home))
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

fn record(held: &mut Held, home: &Home, stream: usize, record: Record) -> Result<(), Failure> {
    if held.is_plainly_of(stream) {
        return Ok(());
    }
    home.with_stream(stream, |stream| {
        if held.stream_id() == Some(stream.id()) {
            return Ok(());
        }
        match &mut held.memory {
            // The program orders the graph's work, which is waited for as a whole when the graph goes.
            Memory::Captured(captured) if captured.home.listed_id().is_some() => {
                Ok(internal::note_use(&captured.buffer, stream)?)
            }
            memory => memory.buffer().map_or(Ok(()), |buffer| Ok(record(buffer, stream)?)),
        }
    })
}

/// As [`record_stream`], of a block that this call has.
pub(crate) fn record_surely(held: &mut Held, home: &Home, stream: usize) -> Result<(), Failure> {
    record(held, home, stream, Buffer::record_stream).inspect_err(|failure| {
        held.memory = match mem::take(&mut held.memory) {
            Memory::Pool(buffer) if failure.status != Status::ASLEEP => Memory::Unordered(buffer),
            other => other,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::pool::CPool;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn the_last_block_of_a_destroyed_pool_is_freed_after_all_work_if_its_users_are_unknown() {
        let options = Options::parse("device=host; host_capacity=1MiB; source=direct").expect("good");
        let handle = registry::add(|handle| CPool::new(handle, options)).expect("a pool");
        let (home, address) =
            registry::with(handle, |pool| Ok((Arc::clone(&pool.home), pool.allocate(100, 0)?)))
                .expect("memory");
        let raw = home.create().expect("a stream");
        let AnyStream::Host(user) = home.find(raw).expect("made") else { panic!("of the host") };
        let is_complete = Arc::new(AtomicBool::new(false));
        let completed = Arc::clone(&is_complete);
        // Slow work, so that a caller that does not wait is certainly early.
        let work = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| {
            std::thread::sleep(Duration::from_millis(50));
            completed.store(true, Ordering::Release);
        };
        user.launch([], [], work).expect("launched");
        assert!(record_stream(address, 0xdead_beef).is_err(), "no such stream");
        registry::remove(handle).expect("it is there");
        free_any(address, |_| Ok(())).expect("live");
        assert!(is_complete.load(Ordering::Acquire));
        home.destroy(raw).expect("destroyed");
    }
}
