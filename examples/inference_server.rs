//! An HTTP inference server (axum 0.8) whose memory has a hard limit: `inference_server [ADDRESS]`, by default
//! 127.0.0.1:8080. `POST /infer` computes on the bytes of the body, `GET /metrics` returns the pool's metrics beside the
//! program's own, from one recorder.
//!
//! A request that can never fit is refused with 413. A request for which memory does not become free in time is refused with
//! 503 and `Retry-After`, and leaves all other requests as they are.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use vrampool::any::{self, AnyDevice, AnyStream};
use vrampool::telemetry::Publisher;
use vrampool::{Backend, Pool, SizeClasses};

/// Bytes of the device that the server takes at most.
const LIMIT: u64 = 64 << 20;
/// Memory of the model for each byte of a request.
const WORKSPACE: u64 = 1024;
/// How long a request waits for memory of others.
const PATIENCE: Duration = Duration::from_millis(200);

/// The common state of requests.
#[derive(Clone)]
pub(crate) struct Server {
    /// The pool of all requests.
    pub(crate) pool: Pool<AnyDevice>,
    publisher: Arc<Publisher>,
    rendered: PrometheusHandle,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let server = Server::start()?;
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, server.router()).await?;
    Ok(())
}

impl Server {
    /// Installs the program's recorder, and opens the pool.
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        // The program's recorder comes first. Its crate `metrics` has vrampool's version, 0.24.
        let recorder = PrometheusBuilder::new().build_recorder();
        let rendered = recorder.handle();
        metrics::set_global_recorder(recorder)?;
        metrics::describe_counter!("refused_total", "Requests refused for want of memory");

        let device = any::open("auto")?;
        // Sizes vary, from 1 KiB on: eight classes to a doubling waste at most an eighth.
        let classes = SizeClasses::Geometric { per_doubling: 8, from: WORKSPACE };
        // `VRAMPOOL_SOURCE=virtual`, where the device has virtual memory, keeps the hit rate high at the limit.
        let pool = Pool::builder(&device).from_environment()?.name("inference");
        let pool = pool.size_classes(classes).limit(LIMIT).build()?;
        let publisher = Publisher::start(Duration::from_secs(5))?;
        publisher.add(&pool)?;
        Ok(Self { pool, publisher: Arc::new(publisher), rendered })
    }

    /// The routes.
    pub(crate) fn router(self) -> Router {
        Router::new().route("/infer", post(infer)).route("/metrics", get(metrics)).with_state(self)
    }
}

/// Computes on the device, in a thread that may wait for memory.
async fn infer(State(server): State<Server>, body: Bytes) -> Response {
    let pool = server.pool.clone();
    let computed = tokio::task::spawn_blocking(move || compute(&pool, &body)).await;
    match computed {
        Ok(Ok(sum)) => format!("{sum}\n").into_response(),
        Ok(Err(error)) => refusal(&server.pool, &error),
        Err(panicked) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{panicked}\n")).into_response(),
    }
}

/// The answer to a request that failed.
fn refusal(pool: &Pool<AnyDevice>, error: &vrampool::Error) -> Response {
    let text = format!("{error}\n");
    match error {
        vrampool::Error::OutOfMemory(shortage) => {
            metrics::counter!("refused_total").increment(1);
            // More than the limit: no wait would help.
            if pool.limit().is_some_and(|limit| shortage.class_bytes > limit) {
                return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
            }
            (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], text).into_response()
        }
        vrampool::Error::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, text).into_response(),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, text).into_response(),
    }
}

/// The model: copies the input to the device and back. Its memory is back in the pool when it returns.
fn compute(pool: &Pool<AnyDevice>, input: &[u8]) -> Result<u64, vrampool::Error> {
    let stream: AnyStream = pool.device().create_stream()?;
    let bytes = input.len() as u64;
    let mut workspace = pool.allocate_timeout((bytes * WORKSPACE).max(1), &stream, PATIENCE)?;
    workspace.write(input, &stream)?;
    let mut output = vec![0; input.len()];
    workspace.read(&mut output, &stream)?;
    Ok(output.iter().map(|&byte| u64::from(byte)).sum())
}

/// The program's metrics and the pool's.
async fn metrics(State(server): State<Server>) -> String {
    server.publisher.publish();
    server.rendered.render()
}
