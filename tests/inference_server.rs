//! The example of an HTTP server: it answers, refuses what cannot fit with 413 and what does not fit now with 503, goes on, and shows
//! its pool's metrics beside its own.

#[path = "../examples/inference_server.rs"]
#[allow(dead_code, reason = "its main function")]
mod inference_server;

use inference_server::Server;
use tokio::net::TcpListener;
use ureq::http::StatusCode;
use vrampool::Backend;

/// The status, `Retry-After` and text of an answer.
fn ask(address: &str, body: Option<&[u8]>) -> (StatusCode, Option<String>, String) {
    let agent =
        ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
    let answer = match body {
        Some(body) => agent.post(format!("{address}/infer")).send(body),
        None => agent.get(format!("{address}/metrics")).call(),
    };
    let mut answer = answer.expect("an answer");
    let retry = answer.headers().get("retry-after").map(|value| value.to_str().expect("text").to_owned());
    (answer.status(), retry, answer.body_mut().read_to_string().expect("text"))
}

#[test]
fn requests_without_memory_are_refused_and_others_go_on() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = Server::start().expect("a server");
    let (router, pool) = (server.clone().router(), &server.pool);
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || runtime.block_on(axum::serve(listener, router).into_future()));

    assert_eq!(ask(&address, Some(&[1, 2, 3])), (StatusCode::OK, None, "6\n".into()));
    assert_eq!(ask(&address, Some(&[1; 1001])), (StatusCode::OK, None, "1001\n".into()));
    let (status, retry, text) = ask(&address, Some(&[7; 100_000]));
    assert_eq!((status, retry), (StatusCode::PAYLOAD_TOO_LARGE, None), "{text}");

    // Another request holds most of the limit.
    let stream = pool.device().create_stream().expect("a stream");
    let held = pool.allocate(60 << 20, &stream).expect("memory");
    let (status, retry, text) = ask(&address, Some(&[7; 10_000]));
    assert_eq!((status, retry.as_deref()), (StatusCode::SERVICE_UNAVAILABLE, Some("1")), "{text}");
    assert!(text.contains("out of memory"), "{text}");
    assert_eq!(ask(&address, Some(&[1; 100])).0, StatusCode::OK, "a small one is served meanwhile");
    drop(held);
    assert_eq!(ask(&address, Some(&[1; 10_000])), (StatusCode::OK, None, "10000\n".into()));

    let (status, _, text) = ask(&address, None);
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("refused_total 2"), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("vrampool_served_total") && line.contains("inference")),
        "{text}"
    );
}
