//! Publishing pools again and again.

use super::{Series, describe};
use crate::error::Error;
use crate::pool::{Handle, Pool};
use crate::stats::PoolStats;
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use vrampool_backend::Backend;

/// Publishes pools to the application's own recorder every so often, until it is dropped. Does not keep a pool alive: one
/// that is dropped is published once more, as holding nothing, and then forgotten.
///
/// ```
/// # use std::time::Duration;
/// # use vrampool::{Pool, host::HostDevice, metrics::Publisher};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let pool = Pool::builder(&HostDevice::new()).build()?;
/// // After the application has installed its recorder:
/// let publisher = Publisher::start(Duration::from_secs(5))?;
/// publisher.add(&pool)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it publishes until it is dropped"]
pub struct Publisher {
    pools: Pools,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Publisher {
    /// Starts publishing at every `interval`.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the system has no thread for it.
    pub fn start(interval: Duration) -> Result<Self, Error> {
        let (pools, stop) = (Pools::default(), Arc::new(Stop::default()));
        let (published, stopped) = (pools.clone(), Arc::clone(&stop));
        let publish = move || {
            describe();
            let mut asked = stopped.asked.lock();
            while !*asked {
                published.publish();
                stopped.changed.wait_for(&mut asked, interval);
            }
            published.publish();
        };
        let thread = std::thread::Builder::new().name("vrampool metrics".into()).spawn(publish);
        let thread = thread.map_err(|error| Error::Configuration {
            field: "interval",
            value: format!("{interval:?}"),
            reason: format!("no thread to publish from: {error}"),
        })?;
        Ok(Self { pools, stop, thread: Some(thread) })
    }

    /// Publishes `pool` from now on.
    ///
    /// # Errors
    /// [`Error::Configuration`] when a pool of the same name, backend and device is published already: their series would
    /// overwrite each other.
    pub fn add<B: Backend>(&self, pool: &Pool<B>) -> Result<(), Error> {
        self.pools.add(pool)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        *self.stop.asked.lock() = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It ends after one more round; a panic in a recorder is the recorder's.
            let _ = thread.join();
        }
    }
}

/// The pools that one publisher publishes.
#[derive(Debug, Clone, Default)]
pub(super) struct Pools {
    listed: Arc<Mutex<Vec<Listed>>>,
}

#[derive(Debug)]
struct Listed {
    series: Series,
    pool: Box<dyn Observe>,
    last: PoolStats,
}

/// A pool of any backend, not kept alive.
trait Observe: fmt::Debug + Send {
    /// `None` once the pool is dropped.
    fn publish(&self, series: &Series) -> Option<PoolStats>;
}

#[derive(Debug)]
struct Observed<B: Backend>(Weak<Handle<B>>);

impl<B: Backend> Observe for Observed<B> {
    fn publish(&self, series: &Series) -> Option<PoolStats> {
        let pool = Pool { handle: self.0.upgrade()? };
        let stats = pool.stats();
        series.publish(&stats);
        if let Ok(info) = pool.device().memory_info() {
            series.publish_device(info);
        }
        Some(stats)
    }
}

impl Pools {
    pub(super) fn add<B: Backend>(&self, pool: &Pool<B>) -> Result<(), Error> {
        let series = Series::of(pool);
        let mut listed = self.listed.lock();
        if listed.iter().any(|other| other.series == series) {
            return Err(Error::Configuration {
                field: "name",
                value: pool.name().to_owned(),
                reason: "a pool of this name on this device is published already; give each pool a name of its own".into(),
            });
        }
        let observed = Observed(Arc::downgrade(&pool.handle));
        listed.push(Listed { series, pool: Box::new(observed), last: pool.stats() });
        Ok(())
    }

    /// Copies the statistics of all pools to the current recorder.
    pub(super) fn publish(&self) {
        self.listed.lock().retain_mut(|listed| match listed.pool.publish(&listed.series) {
            Some(stats) => {
                listed.last = stats;
                true
            }
            None => {
                listed.series.publish_closed(&listed.last);
                false
            }
        });
    }
}
