//! Pools by number.

use crate::blocks;
use crate::failure::{Failure, Status, check_no_callback};
use crate::metrics;
use crate::pool::CPool;
use crate::sleeping::Sleeping;
use crate::streams::Home;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};
use vrampool::any::AnyDevice;
use vrampool::{Pool, internal};

/// How many pools there can be at a time, as a power of two.
const BITS: u32 = 10;

static POOLS: [ArcSwapOption<CPool>; 1 << BITS] = [const { ArcSwapOption::const_empty() }; 1 << BITS];

/// Held while pools come and go.
static CHANGING: Mutex<()> = Mutex::new(());

/// The last number above a place.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Destroyed pools, as long as blocks of them may be live: those that have none go when another pool comes or
/// goes.
static DESTROYED: Mutex<BTreeMap<u64, Destroyed>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Destroyed {
    /// Where its streams are found.
    home: Arc<Home>,
    /// Alive while a call has it, which may be making a block.
    pool: Weak<CPool>,
}

fn place(handle: u64) -> &'static ArcSwapOption<CPool> {
    &POOLS[(handle & ((1 << BITS) - 1)) as usize]
}

/// Gives the pool that `make` makes for it a number.
pub(crate) fn add(make: impl FnOnce(u64) -> Result<CPool, Failure>) -> Result<u64, Failure> {
    let alone = CHANGING.lock();
    forget_ended();
    let free = POOLS.iter().position(|pool| pool.load().is_none());
    let free = free.ok_or_else(|| {
        Failure::new(Status::UNSUPPORTED, format!("there are {} pools already; destroy some", POOLS.len()))
    })?;
    // Relaxed: only distinctness matters.
    let handle = (SERIAL.fetch_add(1, Ordering::Relaxed) + 1) << BITS | free as u64;
    let pool = Arc::new(make(handle)?);
    POOLS[free].store(Some(Arc::clone(&pool)));
    drop(alone);
    if let Some(sleeping) = Sleeping::of(pool) {
        metrics::add(&sleeping);
    }
    Ok(handle)
}

/// Does something with a pool, which is there until it is done.
#[inline(always)]
pub(crate) fn with<T>(handle: u64, act: impl FnOnce(&CPool) -> Result<T, Failure>) -> Result<T, Failure> {
    match &*place(handle).load() {
        Some(pool) if pool.handle == handle => act(pool),
        _ => Err(none(handle)),
    }
}

/// Allocates a block of a pool, under the tag of this thread's scope. Returns its address.
#[inline(never)]
pub(crate) fn allocate(handle: u64, bytes: u64, stream: usize) -> Result<u64, Failure> {
    match CPool::allocate_hit(handle, bytes, stream, internal::take_known) {
        Some(address) => Ok(address),
        None => allocate_large_hit(handle, bytes, stream),
    }
}

/// Two separate functions, so that none need save the registers that the next one uses.
#[inline(never)]
fn allocate_large_hit(handle: u64, bytes: u64, stream: usize) -> Result<u64, Failure> {
    match CPool::allocate_hit(handle, bytes, stream, internal::take_known_large) {
        Some(address) => Ok(address),
        None => allocate_past_hits(handle, bytes, stream),
    }
}

#[inline(never)]
fn allocate_past_hits(handle: u64, bytes: u64, stream: usize) -> Result<u64, Failure> {
    with(handle, |pool| pool.allocate(bytes, stream))
}

/// A pool to keep for a while.
pub(crate) fn get(handle: u64) -> Result<Arc<CPool>, Failure> {
    place(handle).load_full().filter(|pool| pool.handle == handle).ok_or_else(|| none(handle))
}

/// The pools, of which tags are children.
pub(crate) fn pools() -> Vec<Pool<AnyDevice>> {
    let pools = POOLS.iter().filter_map(|pool| pool.load_full());
    pools.map(|pool| pool.main.pool.clone()).collect()
}

/// The pools that can sleep.
pub(crate) fn sleeping() -> Vec<Sleeping> {
    POOLS.iter().filter_map(|pool| Sleeping::of(pool.load_full()?)).collect()
}

/// Takes a pool out. It ends when the calls that have it do.
pub(crate) fn remove(handle: u64) -> Result<(), Failure> {
    check_no_callback()?;
    let alone = CHANGING.lock();
    let pool = get(handle)?;
    forget_ended();
    // Whether it has live blocks or not: calls that have it may yet make some.
    let destroyed = Destroyed { home: Arc::clone(&pool.home), pool: Arc::downgrade(&pool) };
    DESTROYED.lock().insert(handle, destroyed);
    place(handle).store(None);
    drop(alone);
    pool.end();
    Ok(())
}

/// Forgets destroyed pools that no call has and no block is of.
fn forget_ended() {
    let is_ended =
        |(&handle, destroyed): (&u64, &Destroyed)| (destroyed.pool.strong_count() == 0).then_some(handle);
    let ended: Vec<u64> = DESTROYED.lock().iter().filter_map(is_ended).collect();
    if ended.is_empty() {
        return;
    }
    // Acquire: pairs with the release of the thread that released a pool, after it noted its block.
    fence(Ordering::Acquire);
    let live = blocks::pools();
    let forgotten: Vec<_> = {
        let mut destroyed = DESTROYED.lock();
        let ended = ended.into_iter().filter(|handle| !live.contains(handle));
        ended.filter_map(|handle| destroyed.remove(&handle)).collect()
    };
    // With the last handle of a device, without the lock.
    drop(forgotten);
}

/// Where streams of a pool are found; of a destroyed one too, as long as blocks of it are live.
pub(crate) fn home_of(handle: u64) -> Result<Arc<Home>, Failure> {
    match get(handle) {
        Ok(pool) => Ok(Arc::clone(&pool.home)),
        Err(none) => {
            forget_ended();
            DESTROYED.lock().get(&handle).map(|destroyed| Arc::clone(&destroyed.home)).ok_or(none)
        }
    }
}

#[cold]
fn none(handle: u64) -> Failure {
    Failure::new(
        Status::INVALID_HANDLE,
        format!("there is no pool {handle}: it was never created, or was destroyed"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use std::ffi::c_void;
    use std::ptr;

    /// Of a pool that is destroyed with `blocks` live ones.
    fn destroyed(blocks: usize) -> (u64, Vec<*mut c_void>) {
        let options = Options::parse("device=host; host_capacity=1MiB; source=direct").expect("good");
        let handle = add(|handle| CPool::new(handle, options)).expect("a pool");
        let allocate = |_| with(handle, |pool| pool.allocate(100, 0)).expect("memory") as *mut c_void;
        let live = (0..blocks).map(allocate).collect();
        remove(handle).expect("it is there");
        (handle, live)
    }

    #[test]
    fn a_destroyed_pool_is_known_as_long_as_a_block_of_it_is_live() {
        let known = |handle| DESTROYED.lock().contains_key(&handle);
        let (held, live) = destroyed(2);
        let ended: Vec<_> = (0..100).map(|_| destroyed(0).0).collect();
        assert!(ended[..99].iter().all(|&handle| !known(handle)), "each goes with the next");
        assert!(home_of(ended[99]).is_err(), "no block of it is live");
        for (freed, &block) in live.iter().enumerate() {
            assert!(known(held) && home_of(held).is_ok(), "{freed} of its blocks are free");
            let status = crate::vrampool_free(0, block, ptr::null_mut());
            assert_eq!(status, Status::OK);
            destroyed(0);
        }
        assert!(!known(held));
        assert_eq!(home_of(held).map_err(|failure| failure.status).err(), Some(Status::INVALID_HANDLE));
    }
}
