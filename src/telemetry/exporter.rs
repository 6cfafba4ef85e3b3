//! Serving metrics to Prometheus.

use super::endpoint::{LAST_SCRAPES, serve};
use super::owner::Owner;
use super::published::{Keep, Published};
use crate::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use vrampool_backend::spi::start_thread;
use vrampool_backend::{fork, logging};

/// Where an exporter listens by default: on this machine only. The shipped Prometheus configuration scrapes
/// it there.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9184);

/// Serves metrics of pools and other owners at `http://ADDRESS/metrics` until it is dropped, from a thread of its
/// own: it installs nothing in the process, so an application's recorder is left alone. Figures are computed
/// when they are scraped; between scrapes the thread sleeps. The answer is in OpenMetrics' format where the
/// scraper asks for it, else in Prometheus's own. Pools and other owners are not kept alive.
///
/// `GET` and, as HTTP requires of a server, `HEAD` of `/metrics` and `/` are served. Another path is answered
/// with 404, another method with 405. At most 32 connections are served at a time, each for one request, which it
/// sends within a second, and for at most 10 seconds; others wait in the system's queue.
///
/// ```no_run
/// # use vrampool::{Pool, host::HostDevice, telemetry::{DEFAULT_ADDRESS, Exporter}};
/// # let pool = Pool::builder(&HostDevice::new()).build()?;
/// let exporter = Exporter::listen(DEFAULT_ADDRESS)?;
/// exporter.add(&pool)?;
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it serves until it is dropped"]
pub struct Exporter {
    address: SocketAddr,
    published: Published,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts serving at `address`. Port 0 lets the system choose a free port, which
    /// [`address`](Self::address) reports.
    ///
    /// An address that is not a loopback address, such as `0.0.0.0:9184` of a pod, is logged as a warning: every host
    /// that reaches it can read names of pools, sizes and settings, without a password and without encryption.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the address is not available, for example because another program uses
    /// it.
    pub fn listen(address: SocketAddr) -> Result<Self, Error> {
        let failed = |reason: String| Error::configuration("metrics", address.to_string(), reason);
        let (listener, address) = bind(address)
            .map_err(|error| format!("cannot listen there: {error}; free the address or choose another"))
            .map_err(failed)?;
        if !address.ip().is_loopback() {
            logging::warn!(
                "metrics: {address} is open to every host that reaches it, without a password or encryption"
            );
        }
        let published = Published::new(Keep { times: LAST_SCRAPES, most: 0 });
        let (stop, stopped) = oneshot::channel();
        let (started, starting) = mpsc::channel();
        // All of it on a thread of its own: a caller inside another runtime may neither block in nor drop
        // one.
        let serving = published.clone();
        let run = move || match start(listener) {
            Ok((runtime, listener)) => {
                let _ = started.send(Ok(()));
                runtime.spawn(serve(serving, listener));
                // It ends with the runtime, when the sender is dropped.
                let _ = runtime.block_on(stopped);
            }
            Err(reason) => {
                let _ = started.send(Err(reason));
            }
        };
        let thread = std::thread::Builder::new().name("vrampool exporter".into());
        let thread = start_thread(|| thread.spawn(run));
        let thread = thread.map_err(|error| failed(format!("no thread to serve from: {error}")))?;
        starting
            .recv()
            .unwrap_or_else(|_| Err("the thread that serves ended early".into()))
            .map_err(failed)?;
        Ok(Self { address, published, stop: Some(stop), thread: Some(thread) })
    }

    /// Serves a pool, or another owner, from now on. While another one of the same kind, name, backend and device is
    /// served, this one has the label `NAME#2`, and so on. The figures of an owner that ended are served in two
    /// scrapes more.
    ///
    /// # Errors
    /// [`Error::Configuration`] if it is served already.
    pub fn add(&self, owner: &impl Owner) -> Result<(), Error> {
        self.published.add(owner)
    }

    /// Where it listens, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn bind(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

fn start(listener: TcpListener) -> Result<(Runtime, tokio::net::TcpListener), String> {
    let failed = |error| format!("no runtime to serve from: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let entered = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
    drop(entered);
    Ok((runtime, listener))
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if fork::is_forked() {
            // The thread does not exist in this process, and its end cannot be awaited.
            return std::mem::forget((self.stop.take(), self.thread.take()));
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends at once; it has nothing to say.
            let _ = thread.join();
        }
    }
}
