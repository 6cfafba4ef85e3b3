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
    use vrampool::telemetry::{DEFAULT_ADDRESS, Exporter};

    /// What serves, and in which process of a line of forks.
    static EXPORTER: Mutex<Option<(Exporter, u64)>> = Mutex::new(None);

    /// Serves the pools there are, and those that are made later. Returns the address.
    pub(crate) fn start(
        address: Option<&str>,
        pools: impl FnOnce() -> Vec<Pool<AnyDevice>>,
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

    /// Serves a new pool too, if anything is served. Not for who has a lock of pools.
    pub(crate) fn add(pool: &Pool<AnyDevice>) {
        if let Some((exporter, _)) = &*EXPORTER.lock() {
            serve(exporter, pool);
        }
    }

    /// A pool is good without its metrics.
    fn serve(exporter: &Exporter, pool: &Pool<AnyDevice>) {
        if let Err(error) = exporter.add(pool) {
            log::warn!("metrics of the pool {} are not served: {error}", pool.name());
        }
    }
}

#[cfg(not(feature = "prometheus"))]
mod disabled {
    use crate::failure::{Failure, Status};
    use vrampool::Pool;
    use vrampool::any::AnyDevice;

    pub(crate) fn start(
        _address: Option<&str>,
        _pools: impl FnOnce() -> Vec<Pool<AnyDevice>>,
    ) -> Result<std::net::SocketAddr, Failure> {
        Err(Failure::new(Status::UNSUPPORTED, "this library was built without the feature `prometheus`"))
    }

    pub(crate) fn stop() {}

    pub(crate) fn add(_pool: &Pool<AnyDevice>) {}
}
