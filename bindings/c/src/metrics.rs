//! The metrics endpoint of the process.

#[cfg(not(feature = "prometheus"))]
pub(crate) use disabled::{add, start, stop};
#[cfg(feature = "prometheus")]
pub(crate) use enabled::{add, start, stop};

#[cfg(feature = "prometheus")]
mod enabled {
    use crate::failure::{Failure, Status};
    use crate::fork::OfProcess;
    use parking_lot::Mutex;
    use std::net::SocketAddr;
    use vrampool::Pool;
    use vrampool::any::AnyDevice;
    use vrampool::telemetry::{DEFAULT_ADDRESS, Exporter, Owner};
    use vrampool_broker::Broker;

    /// What serves in this process.
    static EXPORTER: OfProcess<Mutex<Option<Exporter>>> = OfProcess::new();

    /// Serves the pools and other owners there are, and those that are made later. Returns the address.
    pub(crate) fn start<S: Owner, O: Owner>(
        address: Option<&str>,
        pools: impl FnOnce() -> Vec<Pool<AnyDevice>>,
        sleeping: impl FnOnce() -> Vec<S>,
        others: impl FnOnce() -> Vec<O>,
        brokers: impl FnOnce() -> Vec<Broker<AnyDevice>>,
    ) -> Result<SocketAddr, Failure> {
        let address: SocketAddr = match address {
            None => DEFAULT_ADDRESS,
            Some(text) => text.parse().map_err(|_| {
                let reason = format!("{text:?} is not an address and a port, such as {DEFAULT_ADDRESS}");
                Failure::invalid("address", &reason)
            })?,
        };
        let of_process = EXPORTER.get();
        let mut running = of_process.1.lock();
        if let Some(exporter) = &*running {
            return Err(Failure::new(
                Status::BUSY,
                format!("metrics are served at {} already; stop that first", exporter.address()),
            ));
        }
        let exporter = Exporter::listen(address)?;
        // With the lock: a pool that is made meanwhile is served by `add`.
        pools().iter().for_each(|pool| serve(&exporter, pool));
        sleeping().iter().for_each(|pool| serve(&exporter, pool));
        others().iter().for_each(|owner| serve(&exporter, owner));
        for broker in brokers() {
            serve(&exporter, &broker);
            serve(&exporter, &broker.pool());
        }
        let address = exporter.address();
        *running = Some(exporter);
        Ok(address)
    }

    pub(crate) fn stop() {
        let exporter = EXPORTER.get().1.lock().take();
        drop(exporter);
    }

    /// Serves a new pool or other owner too, if anything is served. Not for callers that hold a lock of such owners.
    pub(crate) fn add(owner: &impl Owner) {
        if let Some(exporter) = &*EXPORTER.get().1.lock() {
            serve(exporter, owner);
        }
    }

    /// A pool is good without its metrics.
    fn serve<O: Owner>(exporter: &Exporter, owner: &O) {
        if let Err(error) = exporter.add(owner) {
            log::warn!("metrics of the {} {} are not served: {error}", O::LABEL, owner.name());
        }
    }
}

#[cfg(not(feature = "prometheus"))]
mod disabled {
    use crate::failure::{Failure, Status};
    use vrampool::Pool;
    use vrampool::any::AnyDevice;
    use vrampool::telemetry::Owner;
    use vrampool_broker::Broker;

    pub(crate) fn start<S: Owner, O: Owner>(
        _address: Option<&str>,
        _pools: impl FnOnce() -> Vec<Pool<AnyDevice>>,
        _sleeping: impl FnOnce() -> Vec<S>,
        _others: impl FnOnce() -> Vec<O>,
        _brokers: impl FnOnce() -> Vec<Broker<AnyDevice>>,
    ) -> Result<std::net::SocketAddr, Failure> {
        Err(Failure::new(Status::UNSUPPORTED, "this library was built without the feature `prometheus`"))
    }

    pub(crate) fn stop() {}

    pub(crate) fn add(_owner: &impl Owner) {}
}
