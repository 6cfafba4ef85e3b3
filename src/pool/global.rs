//! One pool for each device of the process.

use crate::environment;
use crate::environment::Lookup;
use crate::error::Error;
use crate::pool::settings::Settings;
use crate::pool::{Handle, Pool};
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};
use vrampool_backend::{Backend, DeviceId, fork};

type PoolKey = (TypeId, DeviceId);

/// A pool of any backend, and the settings that it was made with.
type ListedPool = (Weak<dyn Any + Send + Sync>, Settings);

/// Pools by backend type and device. Weak: neither a pool nor its device is kept alive by being listed.
static POOLS: LazyLock<Mutex<HashMap<PoolKey, ListedPool>>> = LazyLock::new(Mutex::default);

impl<B: Backend> Pool<B> {
    /// Returns the process's pool for `device`, with defaults and the
    /// [environment](crate::PoolBuilder::from_environment). It is built if none exists; while a handle to it
    /// exists, every call returns that pool. **Keep the handle for as long as the cache is to live.**
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::shared(&device)?;
    /// let elsewhere = Pool::shared(&device)?;
    /// drop(pool.allocate(1000, &stream)?);
    /// assert_eq!(elsewhere.stats().idle_bytes, 1024);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`PoolBuilder::build`](crate::PoolBuilder::build). [`Error::Environment`] also if a variable has
    /// changed since the existing pool was built: it would have no effect.
    #[doc(alias = "get_persistent_pool")]
    #[doc(alias = "persistent_pool")]
    pub fn shared(device: &B) -> Result<Self, Error> {
        shared_with(device, &environment::process)
    }
}

fn shared_with<B: Backend>(device: &B, lookup: Lookup<'_>) -> Result<Pool<B>, Error> {
    fork::check()?;
    let key = (TypeId::of::<B>(), device.id());
    let settings = Settings::read(lookup)?;
    let mut pools = POOLS.lock();
    let living = pools.get(&key).and_then(|(pool, made_with)| {
        Some((pool.upgrade()?.downcast::<Handle<B>>().ok()?, made_with.clone()))
    });
    if let Some((handle, made_with)) = living {
        // Before the handle, which may be the last by now.
        drop(pools);
        let Some(changed) = made_with.changed_in(&settings) else { return Ok(Pool { handle }) };
        let reason = format!(
            "the pool of this process for {} was made with another value and still lives; drop its last handle first, or build a \
             pool of your own",
            device.id()
        );
        let first = changed.variables.first().map_or(changed.name, |variable| variable.name);
        let set = environment::first_set(changed.variables, lookup).map(|(of, value)| (of.name, value));
        let (variable, value) = set.unwrap_or((first, Default::default()));
        return Err(Error::environment(variable, value.to_string_lossy(), reason));
    }
    let pool = Pool::builder(device)
        .name(format!("{}:{}", device.id().backend, device.label()))
        .with_lookup(lookup)?
        .build()?;
    let handle: Arc<dyn Any + Send + Sync> = pool.handle.clone();
    pools.retain(|_, (pool, _)| pool.strong_count() > 0);
    pools.insert(key, (Arc::downgrade(&handle), settings));
    Ok(pool)
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use vrampool_host::HostDevice;

    #[test]
    fn a_setting_that_changed_while_the_pool_lives_is_an_error() {
        let device = HostDevice::new();
        let with = |value: &'static str| {
            shared_with(&device, &|name| (name == "VRAMPOOL_MAX_CACHED_GB").then(|| OsString::from(value)))
        };
        let pool = with("1").expect("the first");
        assert_eq!(pool.stats().caps.max_cached_bytes, Some(1 << 30));
        drop(with("1.0").expect("the same"));
        let error = with("2").expect_err("it would have no effect").to_string();
        assert!(error.contains("VRAMPOOL_MAX_CACHED_GB") && error.contains("2"), "{error}");
        assert!(with("-2").is_err(), "every value is checked");
        let error = shared_with(&device, &|_| None).expect_err("it is not set any more").to_string();
        assert!(error.contains("VRAMPOOL_MAX_CACHED_BYTES"), "{error}");
        drop(pool);
        assert_eq!(with("2").expect("a new one").stats().caps.max_cached_bytes, Some(2 << 30));
    }
}
