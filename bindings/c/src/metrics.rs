//! The metrics endpoint of the process.

#[cfg(not(feature = "prometheus"))]
pub(crate) use disabled::{add, start, stop};
#[cfg(feature = "prometheus")]
pub(crate) use enabled::{add, start, stop};

#[cfg(feature = "prometheus")]
mod enabled {
    use crate::failure::{Failure, Status};
    use crate::registry;
    use parking_lot::Mutex;
    use std::net::SocketAddr;
    use vrampool::Pool;
    use vrampool::any::AnyDevice;
    use vrampool::metrics::{DEFAULT_ADDRESS, Exporter};

    static EXPORTER: Mutex<Option<Exporter>> = Mutex::new(None);

    pub(crate) fn start(address: Option<&str>) -> Result<(), Failure> {
        let address: SocketAddr = match address {
            None => DEFAULT_ADDRESS,
            Some(text) => text.parse().map_err(|_| {
                Failure::invalid("address", &format!("{text:?} is none; it is as in {DEFAULT_ADDRESS}"))
            })?,
        };
        let mut running = EXPORTER.lock();
        if let Some(exporter) = &*running {
            return Err(Failure::new(
                Status::BUSY,
                format!("it serves at {} already; stop that first", exporter.address()),
            ));
        }
        let exporter = Exporter::listen(address)?;
        for pool in registry::all() {
            pool.tags().iter().for_each(|tagged| serve(&exporter, &tagged.pool));
        }
        *running = Some(exporter);
        Ok(())
    }

    pub(crate) fn stop() {
        let exporter = EXPORTER.lock().take();
        drop(exporter);
    }

    /// Serves a new pool too, if anything is served. Not for who has a lock of pools.
    pub(crate) fn add(pool: &Pool<AnyDevice>) {
        if let Some(exporter) = &*EXPORTER.lock() {
            serve(exporter, pool);
        }
    }

    /// A pool is good without its metrics.
    fn serve(exporter: &Exporter, pool: &Pool<AnyDevice>) {
        if let Err(error) = exporter.add(pool) {
            log::warn!("no metrics of the pool {}: {error}", pool.name());
        }
    }
}

#[cfg(not(feature = "prometheus"))]
mod disabled {
    use crate::failure::{Failure, Status};
    use vrampool::Pool;
    use vrampool::any::AnyDevice;

    pub(crate) fn start(_address: Option<&str>) -> Result<(), Failure> {
        Err(Failure::new(Status::UNSUPPORTED, "this library was built without the feature `prometheus`"))
    }

    pub(crate) fn stop() {}

    pub(crate) fn add(_pool: &Pool<AnyDevice>) {}
}
