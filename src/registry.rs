//! One pool for each device of the process.

use crate::error::Error;
use crate::pool::{Handle, Pool};
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{LazyLock, Weak};
use vrampool_backend::{Backend, DeviceId};

type Key = (TypeId, DeviceId);

/// Pools by backend type and device. Weak: neither a pool nor its device is kept alive by being listed.
static POOLS: LazyLock<Mutex<HashMap<Key, Box<dyn Entry>>>> = LazyLock::new(Mutex::default);

/// A pool of any backend.
trait Entry: Any + Send {
    fn is_dead(&self) -> bool;
}

impl<B: Backend> Entry for Weak<Handle<B>> {
    fn is_dead(&self) -> bool {
        self.strong_count() == 0
    }
}

/// The process's pool for `device`: made with defaults and environment when there is none, the same one for everybody
/// while anybody has a handle to it. **Keep the handle for as long as the cache is to live.**
///
/// ```
/// # use vrampool::{Backend, host::HostDevice, persistent_pool};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = persistent_pool(&device)?;
/// let elsewhere = persistent_pool(&device)?;
/// drop(pool.allocate(1000, &stream)?);
/// assert_eq!(elsewhere.stats().bytes_cached, 1024);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`Builder::build`](crate::Builder::build).
#[doc(alias = "get_persistent_pool")]
pub fn persistent_pool<B: Backend>(device: &B) -> Result<Pool<B>, Error> {
    let key = (TypeId::of::<B>(), device.id());
    let mut pools = POOLS.lock();
    let listed = pools.get(&key).map(|entry| &**entry as &dyn Any);
    let listed = listed.and_then(|entry| entry.downcast_ref::<Weak<Handle<B>>>());
    if let Some(handle) = listed.and_then(Weak::upgrade) {
        return Ok(Pool { handle });
    }
    let pool = Pool::builder(device).name(device.id().to_string()).build()?;
    pools.retain(|_, entry| !entry.is_dead());
    pools.insert(key, Box::new(std::sync::Arc::downgrade(&pool.handle)));
    Ok(pool)
}
