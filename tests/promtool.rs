//! Prometheus's own tool accepts the shipped configuration and rules, and the served metrics.

#![cfg(all(feature = "host", feature = "prometheus"))]

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Output, Stdio};
use vrampool::host::HostDevice;
use vrampool::telemetry::Exporter;
use vrampool::{Backend, Pool};
use vrampool_test_support::program;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/grafana/prometheus");

#[test]
fn promtool_accepts_configuration_rules_and_their_unit_tests() {
    let Some(promtool) = program("promtool") else { return };
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "rules/vrampool.yml"],
        ["test", "rules", "tests/vrampool_test.yml"],
        ["test", "rules", "tests/failures_test.yml"],
    ] {
        let output = Command::new(&promtool).args(arguments).current_dir(SHIPPED).output().expect("it runs");
        succeeded(&arguments.join(" "), &output);
    }
}

#[test]
fn promtool_accepts_what_is_served() {
    let Some(promtool) = program("promtool") else { return };
    let device = HostDevice::new();
    let pool = Pool::builder(&device).name("served").build().expect("a pool");
    let stream = device.create_stream().expect("a stream");
    let child = pool.child("its").build().expect("a pool");
    drop(child.allocate(1000, &stream).expect("memory"));
    let exporter = Exporter::listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    exporter.add(&pool).expect("the only pool");
    let text = get(exporter.address());
    assert!(text.contains("vrampool_served_total{") && text.contains("child=\"its\""), "{text}");
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    check.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    succeeded("check metrics", &check.wait_with_output().expect("it ends"));
}

fn succeeded(what: &str, output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{what}: {}{}", text(&output.stdout), text(&output.stderr));
}

/// The metrics that are served at `address`.
fn get(address: SocketAddr) -> String {
    let mut response = ureq::get(format!("http://{address}/metrics")).call().expect("an answer");
    response.body_mut().read_to_string().expect("text")
}
