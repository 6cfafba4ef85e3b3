//! Pools by number.

use crate::failure::{Failure, Status};
use crate::pool::CPool;
use crate::streams::Home;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many pools there can be at a time, as a power of two.
const BITS: u32 = 10;

static POOLS: [ArcSwapOption<CPool>; 1 << BITS] = [const { ArcSwapOption::const_empty() }; 1 << BITS];

/// Held while pools come and go.
static CHANGING: Mutex<()> = Mutex::new(());

/// The last number above a place.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Where streams of destroyed pools are found, as long as blocks of them may be live.
static DESTROYED: Mutex<Option<HashMap<u64, Arc<Home>>>> = Mutex::new(None);

fn place(handle: u64) -> &'static ArcSwapOption<CPool> {
    &POOLS[(handle & ((1 << BITS) - 1)) as usize]
}

/// Gives the pool that `make` makes for it a number.
pub(crate) fn add(make: impl FnOnce(u64) -> Result<CPool, Failure>) -> Result<u64, Failure> {
    let _alone = CHANGING.lock();
    let free = POOLS.iter().position(|pool| pool.load().is_none());
    let free = free.ok_or_else(|| {
        Failure::new(Status::UNSUPPORTED, format!("there are {} pools already; destroy some", POOLS.len()))
    })?;
    // Relaxed: only distinctness matters.
    let handle = (SERIAL.fetch_add(1, Ordering::Relaxed) + 1) << BITS | free as u64;
    POOLS[free].store(Some(Arc::new(make(handle)?)));
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

/// A pool to keep for a while.
pub(crate) fn get(handle: u64) -> Result<Arc<CPool>, Failure> {
    place(handle).load_full().filter(|pool| pool.handle == handle).ok_or_else(|| none(handle))
}

/// All there are.
#[cfg(feature = "prometheus")]
pub(crate) fn all() -> Vec<Arc<CPool>> {
    POOLS.iter().filter_map(|pool| pool.load_full()).collect()
}

/// Takes a pool out. It ends when the calls that have it do.
pub(crate) fn remove(handle: u64) -> Result<(), Failure> {
    let alone = CHANGING.lock();
    let pool = get(handle)?;
    if pool.has_live_blocks() {
        DESTROYED.lock().get_or_insert_default().insert(handle, Arc::clone(&pool.home));
    }
    place(handle).store(None);
    drop(alone);
    pool.end();
    Ok(())
}

/// Where streams of a pool, also a destroyed one, are found.
pub(crate) fn home_of(handle: u64) -> Result<Arc<Home>, Failure> {
    match get(handle) {
        Ok(pool) => Ok(Arc::clone(&pool.home)),
        Err(none) => {
            DESTROYED.lock().as_ref().and_then(|homes| homes.get(&handle)).map(Arc::clone).ok_or(none)
        }
    }
}

#[cold]
fn none(handle: u64) -> Failure {
    Failure::new(Status::INVALID_HANDLE, format!("there is no pool {handle}: it is none, or was destroyed"))
}
