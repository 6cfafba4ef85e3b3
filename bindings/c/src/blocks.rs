//! Which block begins at an address: for every live block of every pool, found in constant time and without a
//! lock that all share.

use crate::failure::{Failure, Status};
use crate::memory::Memory;
use crate::recording::Note;
use crate::streams;
use crate::table::{self, Table};
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::mem;
use std::num::NonZeroU64;
use vrampool::Buffer;
use vrampool::any::AnyDevice;
use vrampool::backend::StreamId;
use vrampool::internal::{BriefLock, BriefLockGuard};

/// How many locks there are, as a power of two: enough that threads seldom meet, and few, so that what one
/// thread allocates and frees stays in its cache.
const SHARDS: u32 = 4;

/// A live block: with its address, one cache line of the table.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The handle of its pool.
    pub(crate) pool: u64,
    /// The stream it was allocated for, by the handle that was given.
    pub(crate) stream: usize,
    /// [`streams::epoch`] when the handle was looked up.
    epoch: u64,
    /// Its place in a recording, if it is in one.
    pub(crate) note: Note,
    pub(crate) memory: Memory,
}

impl Held {
    /// Whether a handle is surely that of its stream, by looking at numbers alone: not where it may be
    /// another stream's now.
    #[inline(always)]
    pub(crate) fn is_plainly_of(&self, raw: usize) -> bool {
        self.stream == raw && raw != streams::PER_THREAD && self.epoch == streams::epoch()
    }

    /// Whether another call has its memory.
    #[inline(always)]
    fn is_elsewhere(&self) -> bool {
        matches!(self.memory, Memory::Elsewhere)
    }

    /// The stream it was allocated for: the handle may be another stream's on another thread, or later.
    pub(crate) fn stream_id(&self) -> Option<StreamId> {
        self.memory.buffer().map(Buffer::stream_id)
    }
}

/// On two cache lines that nothing else shares, because a processor fetches two at once.
#[repr(align(128))]
struct Shard(BriefLock<Table<Held>>);

static BLOCKS: [Shard; 1 << SHARDS] = [const { Shard(BriefLock::new(Table::new())) }; 1 << SHARDS];

#[inline(always)]
fn shard(address: u64) -> &'static BriefLock<Table<Held>> {
    &BLOCKS[(table::hash(address) >> (u64::BITS - SHARDS)) as usize].0
}

/// Adds a block of a pool, for a stream by its handle and the [epoch](streams::epoch) in which it was found.
/// Returns the memory if the address is 0, or if another block begins there, which is a defect.
#[inline(always)]
pub(crate) fn insert<M: Into<Memory>>(
    address: u64,
    (pool, stream, epoch): (u64, usize, u64),
    memory: M,
    note: Note,
) -> Result<(), M> {
    let Some(place) = NonZeroU64::new(address) else { return Err(memory) };
    match shard(address).lock().add(place) {
        Some(held) => {
            let memory = memory.into();
            // There is nothing to drop in it.
            mem::forget(mem::replace(held, Held { pool, stream, epoch, note, memory }));
            Ok(())
        }
        None => Err(memory),
    }
}

/// Locks the shard of a block, once no other call has the block.
fn lock(address: u64) -> Result<BriefLockGuard<'static, Table<Held>>, Failure> {
    loop {
        let shard = shard(address).lock();
        if !shard.get(address).ok_or_else(|| foreign(address))?.is_elsewhere() {
            return Ok(shard);
        }
        drop(shard);
        wait_for(address);
    }
}

/// Removes a block and returns it, unless `check` fails.
pub(crate) fn remove(address: u64, check: impl Fn(&Held) -> Result<(), Failure>) -> Result<Held, Failure> {
    let mut shard = lock(address)?;
    check(shard.get(address).ok_or_else(|| foreign(address))?)?;
    shard.take(address, |held| Some(mem::take(held))).ok_or_else(|| foreign(address))
}

/// Removes a block of a pool and returns its memory, if its free has to wait for no stream but `stream`, or without
/// one, its own. `None` if the free takes more work, or `is_such` is false for it.
#[inline(always)]
pub(crate) fn remove_plain(
    address: u64,
    stream: Option<usize>,
    is_such: impl FnOnce(&Held) -> bool,
) -> Option<Buffer<AnyDevice>> {
    shard(address).lock().take(address, |held| {
        let is_plain = stream.is_none_or(|stream| held.is_plainly_of(stream));
        if !is_plain || held.note.is_recorded() || !is_such(held) {
            return None;
        }
        match mem::replace(&mut held.memory, Memory::Elsewhere) {
            Memory::Pool(buffer) => Some(buffer),
            other => {
                held.memory = other;
                None
            }
        }
    })
}

/// Looks at a block.
pub(crate) fn look<T>(address: u64, look: impl Fn(&Held) -> T) -> Result<T, Failure> {
    lock(address)?.get(address).map(look).ok_or_else(|| foreign(address))
}

/// Held while a thread checks whether a block that another call uses is back.
static RETURNS: Mutex<()> = Mutex::new(());
static RETURNED: Condvar = Condvar::new();

/// Waits until no other call has the block at this address. Such a call is short: it
/// reports a stream to the driver.
#[cold]
#[inline(never)]
fn wait_for(address: u64) {
    let mut returns = RETURNS.lock();
    #[cfg(test)]
    tests::WAITS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // A call that returns a block puts it there first, and then notifies under this lock.
    while shard(address).lock().get(address).is_some_and(Held::is_elsewhere) {
        RETURNED.wait(&mut returns);
    }
}

/// Does something with a block that takes time, without the lock: meanwhile other calls with it wait.
pub(crate) fn borrow<T>(
    address: u64,
    act: impl FnOnce(&mut Held) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut borrowed = {
        let mut shard = lock(address)?;
        let held = shard.get_mut(address).ok_or_else(|| foreign(address))?;
        let memory = mem::replace(&mut held.memory, Memory::Elsewhere);
        Returned { address, held: Held { memory, ..*held } }
    };
    act(&mut borrowed.held)
}

/// Puts a borrowed block back, also when a panic passes by.
struct Returned {
    address: u64,
    held: Held,
}

impl Drop for Returned {
    fn drop(&mut self) {
        if let Some(place) = shard(self.address).lock().get_mut(self.address) {
            *place = mem::take(&mut self.held);
        }
        drop(RETURNS.lock());
        RETURNED.notify_all();
    }
}

/// Looks at all blocks of a pool, one shard after the other.
pub(crate) fn each_of(pool: u64, mut look: impl FnMut(u64, &Held)) {
    for shard in &BLOCKS {
        shard
            .0
            .lock()
            .iter()
            .filter(|(_, held)| held.pool == pool)
            .for_each(|(address, held)| look(address, held));
    }
}

/// Of which pools there are live blocks: for rare calls, because all are looked at.
pub(crate) fn pools() -> HashSet<u64> {
    let mut pools = HashSet::new();
    BLOCKS.iter().for_each(|shard| pools.extend(shard.0.lock().iter().map(|(_, held)| held.pool)));
    pools
}

/// The block that an address is in: for rare calls, because all are looked at.
pub(crate) fn around(address: u64) -> Option<(u64, u64)> {
    let within = |(start, held): (u64, &Held)| {
        let bytes = held.memory.buffer()?.capacity();
        (start..start.checked_add(bytes)?).contains(&address).then_some((start, bytes))
    };
    BLOCKS.iter().find_map(|shard| shard.0.lock().iter().find_map(within))
}

#[cold]
fn foreign(address: u64) -> Failure {
    let text = format!(
        "no live block begins at {address:#x}: the block was freed already, the address is inside a block, or other code allocated it; nothing was done"
    );
    Failure::new(Status::INVALID_POINTER, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::pool::CPool;
    use crate::registry;
    use crate::streams::PER_THREAD;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use vrampool::Stream;

    /// How often a call waited for another one.
    pub(super) static WAITS: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn a_call_waits_for_another_one_that_has_the_block() {
        let options = Options::parse("device=host; host_capacity=16MiB; source=direct").expect("good");
        let handle = registry::add(|handle| CPool::new(handle, options)).expect("a pool");
        let address = registry::with(handle, |pool| pool.allocate(100, 0)).expect("memory");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waits = WAITS.load(Ordering::Relaxed);
            let mut others = None;
            borrow(address, |_| {
                others = Some(scope.spawn(|| {
                    let freed = borrow(address, |_| Ok(())).and_then(|()| remove(address, |_| Ok(())));
                    is_over.store(true, Ordering::Release);
                    freed.map(drop)
                }));
                // Until the other one waits, or was refused.
                while WAITS.load(Ordering::Relaxed) == waits && !is_over.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                Ok(())
            })
            .expect("it is there");
            let freed = others.expect("it began").join().expect("no panic");
            assert!(freed.is_ok(), "it was refused: {}", freed.expect_err("an error").text);
        });
        registry::remove(handle).expect("removed");
    }

    #[test]
    fn a_handle_is_a_streams_own_only_while_nothing_went_and_never_across_threads() {
        let options = Options::parse("device=host; host_capacity=16MiB; source=direct").expect("good");
        let handle = registry::add(|handle| CPool::new(handle, options)).expect("a pool");
        let home = registry::home_of(handle).expect("its home");
        let raw = home.create().expect("a stream");
        let id = home.find(raw).expect("made").id();
        let allocate = || registry::with(handle, |pool| pool.allocate(100, raw)).expect("memory");
        let is_plainly_of = |address| look(address, |held| held.is_plainly_of(raw)).expect("live");
        // Another test of the process may let a stream of its own go at any time, and then this is tried
        // again.
        let (address, is_plainly) = loop {
            let (before, address) = (streams::epoch(), allocate());
            let is_plainly = is_plainly_of(address);
            if streams::epoch() == before {
                break (address, is_plainly);
            }
            drop(remove(address, |_| Ok(())).expect("live"));
        };
        assert!(is_plainly);
        streams::forget();
        assert!(!is_plainly_of(address), "it may be another stream's by now");
        assert!(look(address, |held| held.stream_id() == Some(id)).expect("live"), "which it is not");
        drop(remove(address, |_| Ok(())).expect("live"));

        // The per-thread stream's handle is another stream's on each thread.
        let held = |raw| Held { stream: raw, epoch: streams::epoch(), ..Held::default() };
        assert!(!held(PER_THREAD).is_plainly_of(PER_THREAD));
        home.destroy(raw).expect("destroyed");
        registry::remove(handle).expect("removed");
    }
}
