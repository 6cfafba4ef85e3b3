//! A real Prometheus scrapes a running job with the shipped configuration. That its alerts fire is checked by
//! `promtool`, and by the scenarios of `cli/tests`.

#[path = "../../cli/tests/scenarios/server.rs"]
mod server;

use serde_json::Value;
use server::Server;
use std::path::Path;
use std::time::{Duration, Instant};
use vrampool::host::HostDevice;
use vrampool::telemetry::{DEFAULT_ADDRESS, Exporter};
use vrampool::{Backend, Pool};
use vrampool_test_support::program;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../grafana/prometheus");

#[test]
fn prometheus_scrapes_a_job_and_evaluates_the_rules() {
    let Some(program) = program("prometheus") else { return };
    let folder = tempfile::tempdir().expect("a folder");

    // A job of two pools: one caches less than it needs, and one all there is.
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let pools = [("starved", Some(1000)), ("healthy", None)].map(|(name, most)| {
        Pool::builder(&device).name(name).max_cached_bytes(most).build().expect("a pool")
    });
    let exporter = Exporter::listen(DEFAULT_ADDRESS).expect("the default address is free");
    pools.iter().for_each(|pool| exporter.add(pool).expect("a name of its own"));
    let work = || {
        for pool in &pools {
            drop((pool.allocate(1000, &stream), pool.allocate(70_000, &stream)));
        }
    };

    let server = Server::start(&program, &Path::new(SHIPPED).join("prometheus.yml"), folder.path());
    // The first may have come before anything was asked for.
    wait_for("a scrape of misses", work, || {
        server
            .value("sum(vrampool_served_total{pool=\"starved\",layer=\"driver\"})")
            .filter(|&misses| misses > 0.0)
    });
    assert_eq!(server.value("vrampool_max_cached_bytes{pool=\"starved\"}"), Some(1000.0));
    assert_eq!(server.value("vrampool_max_cached_bytes{pool=\"healthy\"}"), Some(f64::INFINITY));
    wait_for("a scrape of hits", work, || {
        server.value("vrampool_hit_ratio{pool=\"healthy\"}").filter(|&ratio| ratio > 0.9)
    });
    let rules = wait_for("an evaluation", work, || {
        let groups = server.ask("/api/v1/rules", None)?["groups"].as_array()?.clone();
        let rules: Vec<Value> =
            groups.iter().flat_map(|group| group["rules"].as_array().cloned()).flatten().collect();
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    });
    assert!(rules.len() > 10);
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
}

/// Works and asks until there is an answer; the deadline only ends a test that would fail.
fn wait_for<T>(what: &str, work: impl Fn(), mut answer: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        work();
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::park_timeout(Duration::from_millis(200));
    }
}
