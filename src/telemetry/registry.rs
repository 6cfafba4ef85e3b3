//! All that one publisher or exporter publishes: pools and brokers.

use super::broker::{BrokerFigures, WatchedBroker};
use super::pool::{PoolFigures, WatchedPool};
use super::published::{Keep, Published};
use super::sample::{Figures, Sample};
use super::series::Series;
use crate::broker::Broker;
use crate::error::Error;
use crate::pool::Pool;
use vrampool_backend::Backend;

#[derive(Debug, Clone)]
pub(super) struct Both {
    pools: Published<PoolFigures>,
    brokers: Published<BrokerFigures>,
}

impl Both {
    pub(super) fn new(keep: Keep) -> Self {
        Self { pools: Published::new(keep), brokers: Published::new(keep) }
    }

    pub(super) fn add<B: Backend>(&self, pool: &Pool<B>) -> Result<(), Error> {
        let is_new = self.pools.add(&Series::of_pool(pool), WatchedPool::new(pool));
        unless_twice(is_new, "pool", pool.name())
    }

    pub(super) fn add_broker<B: Backend>(&self, broker: &Broker<B>) -> Result<(), Error> {
        let is_new = self.brokers.add(&Series::of_broker(broker), WatchedBroker::new(broker));
        unless_twice(is_new, "broker", broker.name())
    }

    /// Tells the figures of all of them.
    pub(super) fn tell(&self, to: &mut dyn FnMut(&Series, Sample<'_>)) {
        let mut closing =
            self.pools.tell(&mut |series, figures| figures.samples(&mut |sample| to(series, sample)));
        closing.extend(
            self.brokers.tell(&mut |series, figures| figures.samples(&mut |sample| to(series, sample))),
        );
        // Outside of the locks: memory goes back to devices, and hooks are told.
        drop(closing);
    }
}

fn unless_twice(is_new: bool, field: &'static str, name: &str) -> Result<(), Error> {
    if is_new {
        return Ok(());
    }
    Err(Error::configuration(
        field,
        name.to_owned(),
        format!("this {field} is published already; add each {field} once"),
    ))
}
