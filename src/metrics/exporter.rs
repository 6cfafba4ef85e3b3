//! Serving metrics to Prometheus.

use super::{describe, listed_brokers::Brokers, publisher::Pools};
use crate::broker::Broker;
use crate::error::Error;
use crate::pool::Pool;
use metrics_exporter_prometheus::{ExporterFuture, PrometheusBuilder, PrometheusRecorder};
use metrics_util::MetricKindMask;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use vrampool_backend::Backend;

/// Where an exporter listens by default: on this machine only. The shipped Prometheus configuration scrapes it there.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9184);

/// How old what is served can be.
const INTERVAL: Duration = Duration::from_millis(500);

/// How long the series of a dropped pool are still served.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// Serves pools' and brokers' metrics at `http://ADDRESS/metrics` until it is dropped, from a thread and a recorder of its own: it
/// installs nothing in the process, so an application's own recorder is left alone. What it serves is at most half a
/// second old. Does not keep them alive.
///
/// ```no_run
/// # use vrampool::{Pool, host::HostDevice, metrics::{DEFAULT_ADDRESS, Exporter}};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let pool = Pool::builder(&HostDevice::new()).build()?;
/// let exporter = Exporter::listen(DEFAULT_ADDRESS)?;
/// exporter.add(&pool)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it serves until it is dropped"]
pub struct Exporter {
    address: SocketAddr,
    pools: Pools,
    brokers: Brokers,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts serving at `address`.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the address cannot be had, because another program uses it, say, or names port 0.
    pub fn listen(address: SocketAddr) -> Result<Self, Error> {
        let failed =
            |reason: String| Error::Configuration { field: "metrics", value: address.to_string(), reason };
        if address.port() == 0 {
            return Err(failed("which port it would get cannot be told; name one".into()));
        }
        let (pools, brokers) = (Pools::default(), Brokers::default());
        let (published, shared) = (pools.clone(), brokers.clone());
        let (stop, stopped) = oneshot::channel();
        let (started, starting) = mpsc::channel();
        // All of it on a thread of its own: a caller inside another runtime may neither block in nor drop one.
        let serve = move || match start(address) {
            Ok((runtime, recorder, serve)) => {
                let _ = started.send(Ok(()));
                runtime.spawn(serve);
                runtime.spawn(publish_for_ever(recorder, published, shared));
                // Both end with the runtime, when the sender is dropped.
                let _ = runtime.block_on(stopped);
            }
            Err(reason) => {
                let _ = started.send(Err(reason));
            }
        };
        let thread = std::thread::Builder::new().name("vrampool exporter".into()).spawn(serve);
        let thread = thread.map_err(|error| failed(format!("no thread to serve from: {error}")))?;
        starting
            .recv()
            .unwrap_or_else(|_| Err("the thread that serves ended early".into()))
            .map_err(failed)?;
        Ok(Self { address, pools, brokers, stop: Some(stop), thread: Some(thread) })
    }

    /// Serves `pool` too from now on.
    ///
    /// # Errors
    /// [`Error::Configuration`] when a pool of the same name, backend and device is served already: their series would
    /// overwrite each other.
    pub fn add<B: Backend>(&self, pool: &Pool<B>) -> Result<(), Error> {
        self.pools.add(pool)
    }

    /// Serves `broker` too from now on. Its pool is a pool like any: [`add`](Self::add) it, to see that too.
    ///
    /// # Errors
    /// [`Error::Configuration`] when a broker of the same name, backend and device is served already.
    pub fn add_broker<B: Backend>(&self, broker: &Broker<B>) -> Result<(), Error> {
        self.brokers.add(broker)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

type Started = (Runtime, PrometheusRecorder, ExporterFuture);

fn start(address: SocketAddr) -> Result<Started, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime to serve from: {error}"))?;
    let entered = runtime.enter();
    let builder = PrometheusBuilder::new().with_http_listener(address);
    // A pool that is gone is not shown for ever; what lives is published far more often.
    let built = builder.idle_timeout(MetricKindMask::ALL, Some(FORGET_AFTER)).build();
    drop(entered);
    let (recorder, serve) =
        built.map_err(|error| format!("cannot listen there: {error}; free the address or choose another"))?;
    Ok((runtime, recorder, serve))
}

async fn publish_for_ever(recorder: PrometheusRecorder, pools: Pools, brokers: Brokers) {
    ::metrics::with_local_recorder(&recorder, describe);
    loop {
        ::metrics::with_local_recorder(&recorder, || {
            pools.publish();
            brokers.publish();
        });
        tokio::time::sleep(INTERVAL).await;
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends at once; it has nothing to say.
            let _ = thread.join();
        }
    }
}
