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
    use vrampool::telemetry::{DEFAULT_ADDRESS, Exporter, Owner};

    /// What serves in this process.
    static EXPORTER: OfProcess<Mutex<Option<Exporter>>> = OfProcess::new();

    /// Serves owners from their addition on.
    pub(crate) struct Served<'a>(&'a Exporter);

    impl Served<'_> {
        pub(crate) fn add<O: Owner>(&self, owner: &O) {
            if let Err(error) = self.0.add(owner) {
                log::warn!("metrics of the {} {} are not served: {error}", O::LABEL, owner.name());
            }
        }
    }

    /// Serves the owners there are, which `add_all` adds, and those that are made later. Returns the address.
    pub(crate) fn start(
        address: Option<&str>,
        add_all: impl FnOnce(&Served<'_>),
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
        add_all(&Served(&exporter));
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
            Served(exporter).add(owner);
        }
    }
}

#[cfg(not(feature = "prometheus"))]
mod disabled {
    use crate::failure::{Failure, Status};
    use vrampool::telemetry::Owner;

    pub(crate) enum Served {}

    impl Served {
        pub(crate) fn add(&self, _owner: &impl Owner) {
            match *self {}
        }
    }

    pub(crate) fn start(
        _address: Option<&str>,
        _add_all: impl FnOnce(&Served),
    ) -> Result<std::net::SocketAddr, Failure> {
        Err(Failure::new(Status::UNSUPPORTED, "this library was built without the feature `prometheus`"))
    }

    pub(crate) fn stop() {}

    pub(crate) fn add(_owner: &impl Owner) {}
}
