//! A real Prometheus scrapes a running job with the shipped configuration, and a starved cache makes the
//! alert fire.

#[path = "../../cli/tests/scenarios/server.rs"]
mod server;
mod training;

use serde_json::Value;
use server::Server;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use training::Training;
use vrampool::host::HostDevice;
use vrampool::telemetry::{DEFAULT_ADDRESS, Exporter};
use vrampool::{Backend, Pool, Source};
use vrampool_test_support::program;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../grafana/prometheus");

/// Asks until there is an answer; the deadline only ends a test that would fail.
fn wait_for<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

#[test]
fn prometheus_scrapes_a_job_and_a_starved_cache_fires_the_alert() {
    let Some(program) = program("prometheus") else { return };
    let folder = tempfile::tempdir().expect("a folder");

    // A job of three pools: one caches less than it needs, one all there is, and one is virtual, whose large
    // buffers are its arena's.
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let starved = Pool::builder(&device).name("starved").max_cached_bytes(1000).build().expect("a pool");
    let healthy = Pool::builder(&device).name("healthy").max_cached_bytes(None).build().expect("a pool");
    let virtual_pool = device.virtual_memory().is_some().then(|| {
        let builder = Pool::builder(&device).name("virtual").source(Source::Virtual).limit(1 << 28);
        builder.build().expect("a pool")
    });
    let exporter = Exporter::listen(DEFAULT_ADDRESS).expect("the default address is free");
    virtual_pool.iter().for_each(|pool| exporter.add(pool).expect("a name of its own"));
    exporter.add(&starved).expect("a name of its own");
    exporter.add(&healthy).expect("a name of its own");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                for pool in [&starved, &healthy] {
                    drop((pool.allocate(1000, &stream), pool.allocate(70_000, &stream)));
                }
                if let Some(pool) = &virtual_pool {
                    drop((pool.allocate(5 << 20, &stream), pool.allocate(30 << 20, &stream)));
                }
                std::thread::park_timeout(Duration::from_millis(2));
            }
        });
        // The job must end also when an assertion fails.
        let finished = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scraped_unchanged(&program, folder.path());
            alert_fires(&program, folder.path());
        }));
        done.store(true, Ordering::Release);
        if let Err(panic) = finished {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The configuration as it is shipped.
fn scraped_unchanged(program: &Path, folder: &Path) {
    let server =
        Server::start(program, &Path::new(SHIPPED).join("prometheus.yml"), &folder.join("unchanged"));
    // The first may have come before anything was asked for.
    wait_for("a scrape of misses", || {
        server
            .value("sum(vrampool_served_total{pool=\"starved\",layer=\"driver\"})")
            .filter(|&misses| misses > 0.0)
    });
    assert_eq!(server.value("vrampool_max_cached_bytes{pool=\"starved\"}"), Some(1000.0));
    assert_eq!(server.value("vrampool_max_cached_bytes{pool=\"healthy\"}"), Some(f64::INFINITY));
    wait_for("a scrape of hits", || {
        server.value("vrampool_hit_ratio{pool=\"healthy\"}").filter(|&ratio| ratio > 0.9)
    });
    let rules = wait_for("an evaluation", || {
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

/// The configuration with every duration shortened, as the rules' own head says.
fn alert_fires(program: &Path, folder: &Path) {
    let shorten = |text: &str| {
        let text = text.replace("for: 10m", "for: 2s").replace("for: 30m", "for: 2s").replace("5m", "10s");
        text.replace("interval: 5s", "interval: 1s")
    };
    fs::create_dir_all(folder.join("rules")).expect("a folder");
    let mut program_of_job = Command::new(env!("CARGO_BIN_EXE_vrampool-demos"));
    let training = Training::start(&mut program_of_job, &["--backend", "host", "--source", "virtual"]);
    for file in ["prometheus.yml", "rules/vrampool.yml"] {
        let text = fs::read_to_string(Path::new(SHIPPED).join(file)).expect("shipped");
        let targets = format!("[\"127.0.0.1:9184\", \"{}\"]", training.address);
        let text = text.replace("[\"127.0.0.1:9184\"]", &targets);
        fs::write(folder.join(file), shorten(&text)).expect("written");
    }
    let server = Server::start(program, &folder.join("prometheus.yml"), &folder.join("shortened"));
    wait_for("a warm training run", || {
        server.value("vrampool:hit_ratio:rate10s{pool=\"train\"}").filter(|&ratio| ratio > 0.99)
    });
    let alerts = wait_for("the alert", || {
        let alerts = server.ask("/api/v1/alerts", None)?["alerts"].as_array()?.clone();
        let critical = |alert: &&Value| {
            alert["labels"]["alertname"] == "VrampoolHitRateCritical" && alert["state"] == "firing"
        };
        alerts.iter().any(|alert| critical(&alert)).then_some(alerts)
    });
    if let Some(rate) = server.value("vrampool_bucket_hit_ratio{pool=\"virtual\"}") {
        assert!(rate < 0.1, "its buckets hardly hit: {rate}");
        assert_eq!(
            server.value("vrampool:hit_ratio:rate5m{pool=\"virtual\"}".replace("5m", "10s").as_str()),
            Some(1.0)
        );
    }
    for alert in alerts {
        assert_eq!(alert["labels"]["pool"], "starved", "healthy pools raise no alert: {alert}");
        if alert["labels"]["alertname"] == "VrampoolHitRateCritical" {
            let advice = alert["annotations"]["description"].as_str().expect("advice");
            assert!(advice.contains("max_cached_bytes"), "it says what to change: {advice}");
        }
    }
}
