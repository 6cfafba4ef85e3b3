//! Publishing again and again: pools here, brokers in `listed_brokers`.

use super::listed_brokers::Brokers;
use super::{Closing, Series, TURN, describe};
use crate::broker::Broker;
use crate::error::Error;
use crate::pool::{Handle, Pool};
use crate::stats::PoolStats;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, mem};
use vrampool_backend::{Backend, MemoryInfo, fork};

/// Publishes pools and brokers to the application's own recorder every so often, until it is dropped. Does not keep them alive: one
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
    brokers: Brokers,
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
    /// [`Error::Configuration`] for an interval of nothing, or when the system has no thread for it.
    pub fn start(interval: Duration) -> Result<Self, Error> {
        let failed = |reason: String| Error::Configuration {
            field: "interval",
            value: format!("{interval:?}"),
            reason,
        };
        if interval.is_zero() {
            return Err(failed("it would publish without a pause; choose seconds".into()));
        }
        let (pools, brokers, stop) = (Pools::default(), Brokers::default(), Arc::new(Stop::default()));
        let (published, shared, stopped) = (pools.clone(), brokers.clone(), Arc::clone(&stop));
        let publish = move || {
            describe();
            let mut asked = stopped.asked.lock();
            while !*asked {
                published.publish();
                shared.publish();
                stopped.changed.wait_for(&mut asked, interval);
            }
            published.publish();
            shared.publish();
        };
        let thread = thread::Builder::new().name("vrampool metrics".into()).spawn(publish);
        let thread = thread.map_err(|error| failed(format!("no thread to publish from: {error}")))?;
        Ok(Self { pools, brokers, stop, thread: Some(thread) })
    }

    /// Publishes `pool` from now on. While another pool of the same name, backend and device is published, this one has the label `NAME#2`,
    /// and so on.
    ///
    /// # Errors
    /// [`Error::Configuration`] when this pool is published already.
    pub fn add<B: Backend>(&self, pool: &Pool<B>) -> Result<(), Error> {
        self.pools.add(pool)
    }

    /// Publishes `broker` from now on. Its pool is a pool like any: [`add`](Self::add) it, to see that too.
    ///
    /// # Errors
    /// [`Error::Configuration`] when a broker of the same name, backend and device is published already.
    pub fn add_broker<B: Backend>(&self, broker: &Broker<B>) -> Result<(), Error> {
        self.brokers.add(broker)
    }

    /// Publishes all of them at once, to the current recorder, without waiting for the next time.
    /// One publisher does so at a time; a recorder that is told of it must neither publish nor add.
    pub fn publish(&self) {
        self.pools.publish();
        self.brokers.publish();
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if fork::is_child() {
            // Its thread is not here, and may have held its lock.
            return;
        }
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
    listed: Arc<Mutex<Listed>>,
}

#[derive(Debug, Default)]
struct Listed {
    pools: Vec<ListedPool>,
    /// The last counts of pools that are gone: a counter never falls, so another pool of the same series goes on there.
    gone: HashMap<Series, PoolStats>,
}

#[derive(Debug)]
struct ListedPool {
    series: Series,
    pool: Box<dyn Observe>,
    /// What an earlier pool of the same series had counted.
    before: PoolStats,
}

/// A pool of any backend, not kept alive.
trait Observe: fmt::Debug + Send + Sync {
    /// `None` once the pool is dropped. Whoever calls it has the turn.
    fn observe(&self) -> Option<Seen>;

    /// Whether somebody has the pool, which those who look at it have not: whoever calls it has the turn.
    fn is_there(&self) -> bool;

    /// Which pool it is, among those that are remembered.
    fn place(&self) -> usize;

    /// The figures of a pool that is gone, when it ended.
    fn last(&self) -> PoolStats;
}

#[derive(Debug)]
struct Seen {
    stats: PoolStats,
    info: Option<MemoryInfo>,
    /// The pool itself, where all others who had it dropped it meanwhile.
    last: Option<Closing>,
}

#[derive(Debug)]
struct Observed<B: Backend> {
    handle: Weak<Handle<B>>,
    last: Arc<OnceLock<PoolStats>>,
}

impl<B: Backend> Observe for Observed<B> {
    fn observe(&self) -> Option<Seen> {
        let pool = Pool { handle: self.handle.upgrade()? };
        let (stats, info) = (pool.stats(), pool.device().memory_info().ok());
        let last = Arc::into_inner(pool.handle).map(|handle| Box::new(handle) as Closing);
        Some(Seen { stats, info, last })
    }

    fn is_there(&self) -> bool {
        self.handle.strong_count() > 0
    }

    fn place(&self) -> usize {
        self.handle.as_ptr().addr()
    }

    /// Who drops the pool says them first of all.
    fn last(&self) -> PoolStats {
        loop {
            match self.last.get() {
                Some(last) => return last.clone(),
                None => thread::yield_now(),
            }
        }
    }
}

impl Pools {
    pub(super) fn add<B: Backend>(&self, pool: &Pool<B>) -> Result<(), Error> {
        let own = Series::of(pool);
        let handle = Arc::downgrade(&pool.handle);
        let observed = Observed { handle, last: Arc::clone(&pool.handle.last) };
        let _turn = TURN.lock();
        let mut listed = self.listed.lock();
        for series in (1..).map(|number| own.numbered(number)) {
            if let Some(other) = listed.pools.iter().find(|other| other.series == series) {
                if other.pool.place() == observed.place() {
                    return Err(Error::Configuration {
                        field: "pool",
                        value: pool.name().to_owned(),
                        reason: "this pool is published already; add each pool once".into(),
                    });
                }
                if other.pool.is_there() {
                    continue;
                }
                listed.forget(&series);
            }
            let before = listed.gone.get(&series).cloned().unwrap_or_default();
            listed.pools.push(ListedPool { series, pool: Box::new(observed), before });
            break;
        }
        Ok(())
    }

    /// Copies the statistics of all pools to the current recorder.
    /// Returns whether some are gone, whose last figures these are.
    pub(super) fn publish(&self) -> bool {
        // Before the locks, so that these go out of them whatever a recorder does.
        let mut closing = Vec::new();
        let turn = TURN.lock();
        let mut listed = self.listed.lock();
        let mut is_any_gone = false;
        for entry in mem::take(&mut listed.pools) {
            match entry.pool.observe() {
                Some(Seen { stats, info, last }) => {
                    entry.series.publish(&stats.counting_on(&entry.before));
                    if let Some(info) = info {
                        entry.series.publish_device(info);
                    }
                    closing.extend(last);
                    listed.pools.push(entry);
                }
                None => {
                    listed.end(entry);
                    is_any_gone = true;
                }
            }
        }
        drop((listed, turn));
        // Their memory goes back to the device, and hooks are told.
        drop(closing);
        is_any_gone
    }
}

impl Listed {
    /// Takes out a pool that is gone.
    fn forget(&mut self, series: &Series) {
        if let Some(index) = self.pools.iter().position(|pool| pool.series == *series) {
            let entry = self.pools.swap_remove(index);
            self.end(entry);
        }
    }

    /// Publishes what a pool that is gone had counted, and that it holds nothing.
    fn end(&mut self, ListedPool { series, before, pool }: ListedPool) {
        let last = pool.last().counting_on(&before);
        series.publish_closed(&last);
        self.gone.insert(series, last);
    }
}
