//! The HTTP side of an exporter: accepts connections and answers each with metrics that are computed for it.
//!
//! Clients are not trusted. At most [`MOST_CONNECTIONS`] are served at a time, one request each, and every
//! one must have sent its request within [`REQUEST_DEADLINE`] and read the answer within [`DEADLINE`]; others
//! wait in the system's queue.
//! Without a client nothing runs and no timer is set.

use super::exposition::{Format, Text};
use super::published::Published;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue, VARY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use vrampool_backend::logging;

/// How many clients are served at a time.
const MOST_CONNECTIONS: usize = 32;

/// How long a client may take for its request: idle connections must not delay a scrape.
const REQUEST_DEADLINE: Duration = Duration::from_secs(1);

/// How long a client may take for its request and for reading the answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// The pause after a connection could not be accepted, for want of descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// In how many scrapes the last figures of a dropped pool are served: also a second scraper's.
pub(super) const LAST_SCRAPES: u32 = 2;

/// Serves until it is dropped.
pub(super) async fn serve(published: Published, listener: TcpListener) {
    let free = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&free).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((connection, _)) => {
                let published = published.clone();
                // A panic of a backend's or of a hook's ends this connection alone.
                tokio::spawn(async move {
                    answer(&published, connection).await;
                    drop(place);
                });
            }
            Err(error) => {
                logging::warn!("metrics: a connection was not accepted: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn answer(published: &Published, connection: TcpStream) {
    let service = service_fn(|request| std::future::ready(Ok::<_, Infallible>(respond(published, &request))));
    let connection = http1::Builder::new()
        .keep_alive(false)
        .writev(false)
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_DEADLINE)
        .serve_connection(TokioIo::new(connection), service);
    match timeout(DEADLINE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => logging::debug!("metrics: a client's connection failed: {error}"),
        Err(_) => logging::debug!("metrics: a client took longer than {DEADLINE:?}"),
    }
}

fn respond(published: &Published, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let with = |status: StatusCode, format: Format, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        let content_type = HeaderValue::from_static(format.content_type());
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    };
    let plain = |status, text: &str| with(status, Format::Prometheus, text.to_owned());
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" | "/" => {
            let accept = request.headers().get_all(ACCEPT);
            let format = Format::accepted(accept.iter().filter_map(|value| value.to_str().ok()));
            let mut text = Text::new(format);
            published.publish(&mut |series, sample| text.add(series, sample));
            let mut response = with(StatusCode::OK, format, text.finish());
            response.headers_mut().insert(VARY, HeaderValue::from_name(ACCEPT));
            response
        }
        _ => plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n"),
    }
}
