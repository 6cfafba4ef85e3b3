//! The metrics endpoint of the process.

#[cfg(not(feature = "prometheus"))]
pub(crate) use disabled::{add, start, stop};
#[cfg(feature = "prometheus")]
pub(crate) use enabled::{add, start, stop};

#[cfg(feature = "prometheus")]
mod enabled {
    use crate::failure::{Failure, Status};
    use crate::fork;
    use parking_lot::Mutex;
    use std::net::SocketAddr;
    use vrampool::Pool;
    use vrampool::any::AnyDevice;
    use vrampool::telemetry::{DEFAULT_ADDRESS, Exporter, Owner};

    /// What serves, and in which process of a line of forks.
    static EXPORTER: Mutex<Option<(Exporter, u64)>> = Mutex::new(None);

    /// Serves the pools and other owners there are, and those that are made later. Returns the address.
    pub(crate) fn start<S: Owner, O: Owner>(
        address: Option<&str>,
        pools: impl FnOnce() -> Vec<Pool<AnyDevice>>,
        sleeping: impl FnOnce() -> Vec<S>,
        others: impl FnOnce() -> Vec<O>,
    ) -> Result<SocketAddr, Failure> {
        let address: SocketAddr = match address {
            None => DEFAULT_ADDRESS,
            Some(text) => text.parse().map_err(|_| {
                let reason = format!("{text:?} is not an address and a port, such as {DEFAULT_ADDRESS}");
                Failure::invalid("address", &reason)
            })?,
        };
        fork::watch();
        let mut running = EXPORTER.lock();
        forget_parents(&mut running);
        if let Some((exporter, _)) = &*running {
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
        let address = exporter.address();
        *running = Some((exporter, fork::generation()));
        Ok(address)
    }

    pub(crate) fn stop() {
        let exporter = {
            let mut running = EXPORTER.lock();
            forget_parents(&mut running);
            running.take()
        };
        drop(exporter);
    }

    /// An exporter of the process that this one was forked from: its thread is not here, so there is nobody
    /// to wait for.
    fn forget_parents(running: &mut Option<(Exporter, u64)>) {
        if let Some(parents) = running.take_if(|(_, generation)| *generation != fork::generation()) {
            std::mem::forget(parents);
        }
    }

    /// Serves a new pool or other owner too, if anything is served. Not for callers that hold a lock of such owners.
    pub(crate) fn add(owner: &impl Owner) {
        if let Some((exporter, _)) = &*EXPORTER.lock() {
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

    pub(crate) fn start<S: Owner, O: Owner>(
        _address: Option<&str>,
        _pools: impl FnOnce() -> Vec<Pool<AnyDevice>>,
        _sleeping: impl FnOnce() -> Vec<S>,
        _others: impl FnOnce() -> Vec<O>,
    ) -> Result<std::net::SocketAddr, Failure> {
        Err(Failure::new(Status::UNSUPPORTED, "this library was built without the feature `prometheus`"))
    }

    pub(crate) fn stop() {}

    pub(crate) fn add(_owner: &impl Owner) {}
}
