//! The HTTP side of an exporter: accepts connections and answers each with metrics that are computed for it.
//!
//! Clients are not trusted. At most [`MOST_CONNECTIONS`] are served at a time, one request each, and every one must have sent
//! its request and read the answer within [`DEADLINE`]; others wait in the system's queue. Without a client nothing runs and no timer
//! is set.

use super::{describe, escaping::Escaping, listed_brokers::Brokers, publisher::Pools};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// How many clients are served at a time.
const MOST_CONNECTIONS: usize = 32;

/// How long a client may take for its request and for reading the answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// The pause after a connection could not be accepted, for want of descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// In how many scrapes the series of a dropped pool are served at most, the one with its last figures included.
const LAST_SCRAPES: u32 = 2;

/// Prometheus's text format.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// What one exporter serves.
pub(super) struct Endpoint {
    figures: Mutex<Figures>,
    pools: Pools,
    brokers: Brokers,
}

/// What was published.
struct Figures {
    recorder: PrometheusRecorder,
    /// In how many scrapes something that is gone was served, if there is any.
    last_scrapes: Option<u32>,
}

impl Figures {
    fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        ::metrics::with_local_recorder(&recorder, describe);
        Self { recorder, last_scrapes: None }
    }
}

impl Endpoint {
    pub(super) fn new(pools: Pools, brokers: Brokers) -> Self {
        Self { figures: Mutex::new(Figures::new()), pools, brokers }
    }

    /// Serves until it is dropped.
    pub(super) async fn serve(self, listener: TcpListener) {
        let (endpoint, free) = (Arc::new(self), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
        loop {
            let Ok(place) = Arc::clone(&free).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((connection, _)) => {
                    let endpoint = Arc::clone(&endpoint);
                    // A panic of a backend's or of a hook's ends this connection alone.
                    tokio::spawn(async move {
                        endpoint.answer(connection).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    log::warn!("metrics: a connection was not accepted: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn answer(&self, connection: TcpStream) {
        let service = service_fn(|request| std::future::ready(Ok::<_, Infallible>(self.respond(&request))));
        let connection =
            http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(connection), service);
        match timeout(DEADLINE, connection).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log::debug!("metrics: a client's connection failed: {error}"),
            Err(_) => log::debug!("metrics: a client took longer than {DEADLINE:?}"),
        }
    }

    fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let with = |status: StatusCode, text: String| {
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = status;
            response.headers_mut().insert(CONTENT_TYPE, TEXT);
            response
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = with(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served\n".into());
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/metrics" | "/" => with(StatusCode::OK, self.metrics()),
            "/health" => with(StatusCode::OK, "OK".into()),
            _ => with(StatusCode::NOT_FOUND, "metrics are at /metrics\n".into()),
        }
    }

    /// The figures of this moment.
    fn metrics(&self) -> String {
        let mut figures = self.figures.lock();
        if figures.last_scrapes == Some(LAST_SCRAPES) {
            // A recorder forgets nothing. What is there is published anew.
            *figures = Figures::new();
        }
        let is_any_gone = ::metrics::with_local_recorder(&Escaping(&figures.recorder), || {
            let [pools, brokers] = [self.pools.publish(), self.brokers.publish()];
            pools || brokers
        });
        figures.last_scrapes = match figures.last_scrapes {
            Some(scrapes) => Some(scrapes + 1),
            None => is_any_gone.then_some(1),
        };
        figures.recorder.handle().render()
    }
}
