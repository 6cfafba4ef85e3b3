//! Every metric that is listed is exported, every metric that a panel or a rule reads is exported, and
//! publishing gets on with the application around it.

#![cfg(feature = "prometheus")]

mod holders;
mod listed;
mod owners;
mod pool_names;
mod totals;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};
use vrampool::host::HostDevice;
use vrampool::telemetry::{DEFAULT_ADDRESS, Exporter, Publisher, publish};
use vrampool::{Backend, Error, Placement, Pool, SizeClasses, Source};
use vrampool_test_support::{assert_metrics_together, samples};

fn recorder() -> (PrometheusRecorder, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    (recorder, handle)
}

/// At a port that the system chooses.
fn exporter() -> Exporter {
    Exporter::listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port")
}

fn scrape(exporter: &Exporter) -> BTreeMap<String, f64> {
    let served = ureq::get(format!("http://{}/metrics", exporter.address())).call().expect("served");
    samples(&served.into_body().read_to_string().expect("text"))
}

/// The one series of a name, whose labels begin with `labels`.
fn one(series: &BTreeMap<String, f64>, name: &str, labels: &str) -> Option<f64> {
    let begin = format!("{name}{{{labels}");
    let mut found = series.iter().filter(|(series, _)| series.starts_with(&begin));
    let value = found.next().map(|(_, &value)| value);
    assert_eq!(found.next(), None, "more than one {begin}");
    value
}

/// The requests of a pool that a layer served.
fn served_by(series: &BTreeMap<String, f64>, (pool, device): (&str, &HostDevice), by: &str) -> Option<f64> {
    let labels = format!("pool=\"{pool}\",backend=\"host\",device=\"{}\",layer=\"{by}\"", device.label());
    one(series, "vrampool_served_total", &labels)
}

#[test]
fn the_figures_are_the_pools_own() {
    let (recorder, handle) = recorder();
    let device = HostDevice::builder().memory_limit(1 << 30).build();
    let stream = device.create_stream().expect("a stream");
    let builder =
        Pool::builder(&device).name("figures").size_classes(SizeClasses::EXACT).max_cached_bytes(1 << 20);
    let pool = builder.limit(1 << 21).build().expect("a pool");
    let live = pool.allocate(700_000, &stream).expect("memory");
    drop(pool.allocate(600_000, &stream).expect("memory"));
    drop(pool.allocate(600_000, &stream).expect("memory"));
    assert!(pool.allocate(3 << 20, &stream).is_err());
    metrics::with_local_recorder(&recorder, || publish(&pool));
    let series = samples(&handle.render());
    let labels = format!("pool=\"figures\",backend=\"host\",device=\"{}\"", device.id().key);
    let value = |name: &str, more: &str| {
        let name = format!("{name}{{{labels}{more}}}");
        *series.get(&name).unwrap_or_else(|| panic!("no {name} in {series:#?}"))
    };
    // Exact classes are summed up by powers of two.
    assert_eq!(value("vrampool_bucket_hits_total", ",bucket=\"1048576\""), 1.0);
    assert_eq!(value("vrampool_bucket_misses_total", ",bucket=\"1048576\""), 2.0);
    assert_eq!(
        value("vrampool_bucket_misses_total", ",bucket=\"4194304\""),
        0.0,
        "a refused request is no miss"
    );
    assert_eq!(value("vrampool_live_bytes", ""), live.capacity() as f64);
    assert_eq!(value("vrampool_requested_bytes", ""), 700_000.0);
    assert_eq!(value("vrampool_idle_bytes", ""), 600_064.0);
    assert_eq!(value("vrampool_bucket_idle_bytes", ",bucket=\"1048576\""), 600_064.0);
    assert_eq!(value("vrampool_held_bytes", ""), live.capacity() as f64 + 600_064.0);
    assert_eq!(value("vrampool_limit_bytes", ""), 2_097_152.0);
    assert_eq!(value("vrampool_budget_bytes", ""), f64::INFINITY);
    assert_eq!(value("vrampool_failed_total", ",reason=\"request\""), 1.0);
    assert!(value("vrampool_last_failure_timestamp_seconds", ",reason=\"request\"") > 1.7e9);
    assert!(value("vrampool_start_time_seconds", "") > 1.7e9);
    assert_eq!(value("vrampool_device_lost", ""), 0.0);
    assert_eq!(value("vrampool_driver_seconds_count", ""), 2.0);
    assert_eq!(value("vrampool_driver_seconds_bucket", ",le=\"+Inf\""), 2.0);
    let more = format!(",version=\"{}\",features=\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(one(&series, "vrampool_info", &format!("{labels}{more}")), Some(1.0));
    let info = series.keys().find(|name| name.starts_with("vrampool_info")).expect("the pool's");
    for of in pool.settings().iter().filter(|of| of.setting.name != "name") {
        assert!(info.contains(&format!(",{}=\"{}\"", of.setting.name, of.text)), "{of}: {info}");
    }
    assert_eq!(value("vrampool_rungs_total", ",rung=\"fail\""), 1.0);
    assert_eq!(value("vrampool_hit_ratio", ""), 1.0 / 3.0);
    assert_eq!(value("vrampool_bucket_hit_ratio", ""), 1.0 / 3.0);
    assert_eq!(value("vrampool_device_total_bytes", ""), 1_073_741_824.0);
}

#[test]
fn an_exporter_leaves_the_applications_recorder_alone_and_a_dropped_pool_holds_nothing() {
    // The application has a recorder; it is the process's.
    let (recorder, handle) = recorder();
    metrics::set_global_recorder(recorder).expect("the only one");
    metrics::counter!("application_requests_total").increment(3);

    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).name("inside").build().expect("a pool");
    let exporter = exporter();
    exporter.add(&pool).expect("the only pool");
    let publisher = Publisher::start(Duration::from_millis(1)).expect("a thread");
    publisher.add(&pool).expect("the only pool");
    let error = publisher.add(&pool.clone()).expect_err("the same pool twice");
    assert!(error.to_string().contains("add each pool once"), "{error}");

    let live = pool.allocate(1000, &stream).expect("memory");
    let wait_until = |what: &str, seen: &dyn Fn(&BTreeMap<String, f64>) -> bool| {
        // The deadline only ends a test that would fail.
        let deadline = Instant::now() + Duration::from_secs(90);
        while !seen(&samples(&handle.render())) {
            assert!(Instant::now() < deadline, "{what} was not published: {}", handle.render());
            std::thread::park_timeout(Duration::from_micros(100));
        }
    };
    let holds = |series: &BTreeMap<String, f64>, bytes: f64| {
        series.iter().any(|(name, &value)| name.starts_with("vrampool_held_bytes") && value == bytes)
    };
    wait_until("a live buffer", &|series| holds(series, 1024.0));
    drop((live, pool));
    wait_until("a dropped pool", &|series| holds(series, 0.0));
    drop(publisher);
    assert!(handle.render().contains("application_requests_total 3"));
    let served = ureq::get(format!("http://{}/metrics", exporter.address())).call().expect("served");
    let served = served.into_body().read_to_string().expect("text");
    assert!(!served.contains("application_requests_total"), "the exporter's recorder is its own");
}

#[test]
fn clients_that_say_nothing_or_nonsense_do_not_stop_a_scrape() {
    use std::io::{Read, Write};
    let device = HostDevice::new();
    let exporter = exporter();
    let pool = Pool::builder(&device).name("busy").build().expect("a pool");
    exporter.add(&pool).expect("the only pool");
    let connect = || std::net::TcpStream::connect(exporter.address()).expect("a connection");
    let silent: Vec<_> = (0..20).map(|_| connect()).collect();
    let mut answers = Vec::new();
    for request in [
        "nonsense\r\n\r\n".to_owned(),
        "GET /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".into(),
        "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "GET /health HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(1 << 20)),
    ] {
        let mut client = connect();
        // One that sends too much is hung up on while it sends.
        let _ = client.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        answers.push(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned());
    }
    assert!(answers[0].contains(" 400 ") && answers[1].contains(" 404 "), "{answers:?}");
    assert!(answers[2].contains(" 405 ") && answers[3].contains(" 200 "), "{answers:?}");
    assert!(answers[4].contains(" 404 ") && !answers[5].contains(" 200 "), "{answers:?}");
    assert!(scrape(&exporter).len() > 30);
    drop(silent);
}

/// Large classes of a virtual pool are not cached: its arena has them, and asks the driver for nothing once
/// it is warm.
#[test]
fn requests_are_counted_by_the_layer_that_served_them() {
    let (recorder, handle) = recorder();
    let device = HostDevice::new();
    if device.virtual_memory().is_none() {
        return vrampool_test_support::skipped("no virtual memory here");
    }
    let stream = device.create_stream().expect("a stream");
    let of = |source: Source| {
        let builder = Pool::builder(&device).name(source.name()).source(source).limit(1 << 30);
        let pool = builder.max_cached_bytes(1 << 20).build().expect("a pool");
        let mut live = Vec::new();
        for round in 0..10 {
            live.clear();
            for size in [1000, 70_000, 5 << 20, 30 << 20] {
                live.push(pool.allocate(size + round, &stream).expect("memory"));
            }
        }
        drop(live);
        assert!(pool.allocate(2 << 30, &stream).is_err(), "over the limit");
        metrics::with_local_recorder(&recorder, || publish(&pool));
        let (stats, series) = (pool.stats(), samples(&handle.render()));
        let of = &stats.served;
        let served = [("bucket", of.by_bucket), ("arena", of.by_arena), ("driver", of.by_driver)].map(
            |(layer, count)| {
                let value = served_by(&series, (source.name(), &device), layer).expect("a series");
                assert_eq!(value, count as f64);
                value
            },
        );
        assert_eq!(served.iter().sum::<f64>(), 40.0, "all that were served: {served:?}");
        assert_eq!(stats.served.total(), 40, "the failed one is neither");
        let calls = one(&series, "vrampool_memory_calls_total", &format!("pool=\"{}\"", source.name()));
        (served, calls.expect("a series"), stats)
    };
    let ([bucket, arena, driver], calls, stats) = of(Source::Virtual);
    assert!(bucket > 0.0 && arena >= 18.0, "{bucket} {arena} {driver}");
    assert!((1.0..=4.0).contains(&driver), "those of the first round: {driver}");
    assert_eq!(calls, stats.mapping.calls as f64);
    assert!(stats.bucket_hit_rate() < 0.6 && stats.hit_rate() >= 0.9, "{stats:?}");
    let ([_, arena, driver], calls, _) = of(Source::Direct);
    assert_eq!(arena, 0.0);
    assert!(driver >= 20.0 && calls > driver, "what is not cached is the driver's: {driver} {calls}");
    let ([_, arena, driver], calls, _) = of(Source::Arena);
    assert!(arena > 0.0 && driver == 0.0 && calls == 0.0, "{arena} {driver} {calls}");
}

/// OpenMetrics names a counter without its suffix, says units, and ends; the samples are the same.
#[test]
fn a_scraper_gets_the_format_it_asks_for() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let exporter = exporter();
    let pool = Pool::builder(&device).name("both").build().expect("a pool");
    exporter.add(&pool).expect("the only pool");
    drop(pool.allocate(1000, &stream).expect("memory"));
    let get = |accept: &str| {
        let url = format!("http://{}/metrics", exporter.address());
        let served = ureq::get(url).header("Accept", accept).call().expect("served");
        let content_type = served.headers()["content-type"].to_str().expect("text").to_owned();
        (content_type, served.into_body().read_to_string().expect("text"))
    };
    let (plain_type, plain) = get("text/plain");
    let (open_type, open) =
        get("application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3");
    assert_eq!(plain_type, "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(open_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert_eq!(samples(&plain), samples(&open));
    for line in [
        "# TYPE vrampool_served counter",
        "# TYPE vrampool_held_bytes gauge",
        "# UNIT vrampool_held_bytes bytes",
        "# UNIT vrampool_source_allocated_bytes bytes",
        "# UNIT vrampool_oldest_wait_seconds seconds",
        "# TYPE vrampool_wait_seconds histogram",
    ] {
        assert!(open.lines().any(|found| found == line), "{line}: {open}");
        assert!(!plain.lines().any(|found| found == line && line.contains("UNIT")), "{line}");
    }
    assert!(plain.contains("# TYPE vrampool_served_total counter"));
    assert!(open.ends_with("\n# EOF\n") && open.matches("# EOF").count() == 1);
    assert_metrics_together(&plain);
    assert_metrics_together(&open);
    for (accept, is_open) in [
        ("", false),
        ("*/*", false),
        ("application/openmetrics-text", true),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", true),
        ("application/openmetrics-text; version=2.0.0", false),
        ("application/openmetrics-text;q=0,text/plain", false),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.3", false),
        ("application/openmetrics-text;q=nonsense", false),
        // As Prometheus 2 and 3 ask.
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            true,
        ),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            true,
        ),
    ] {
        assert_eq!(get(accept).0, if is_open { &open_type } else { &plain_type }.as_str(), "{accept}");
    }
}

/// A recorder keeps the last value of a gauge: one that nothing knows any more must not look like a figure of now.
#[test]
fn figures_that_a_lost_device_no_longer_reports_are_not_repeated() {
    let device = HostDevice::new();
    let pool = Pool::builder(&device).name("lost").build().expect("a pool");
    let exporter = exporter();
    exporter.add(&pool).expect("the only pool");
    let publisher = Publisher::start(Duration::from_secs(3600)).expect("a thread");
    publisher.add(&pool).expect("the only pool");
    let (recorder, handle) = recorder();
    let free = |series: &BTreeMap<String, f64>| one(series, "vrampool_device_free_bytes", "pool=\"lost\"");
    let lost = |series: &BTreeMap<String, f64>| one(series, "vrampool_device_lost", "pool=\"lost\"");
    metrics::with_local_recorder(&recorder, || publisher.publish());
    let (served, kept) = (scrape(&exporter), samples(&handle.render()));
    assert!(free(&served).is_some() && free(&served) == free(&kept));
    assert_eq!((lost(&served), lost(&kept)), (Some(0.0), Some(0.0)));

    device.faults().lose_device();
    metrics::with_local_recorder(&recorder, || publisher.publish());
    let (served, kept) = (scrape(&exporter), samples(&handle.render()));
    assert_eq!((lost(&served), lost(&kept)), (Some(1.0), Some(1.0)));
    assert_eq!(free(&served), None, "the exporter leaves it out");
    assert!(free(&kept).expect("a recorder forgets nothing").is_nan());
}

/// A batch job ends before it is scraped: its metrics stay in a file, as they would be served.
#[test]
fn a_file_has_what_a_scrape_would_have() {
    let device = HostDevice::new();
    let pool = Pool::builder(&device).name("batch").limit(1 << 20).build().expect("a pool");
    let stream = device.create_stream().expect("a stream");
    assert!(pool.allocate(2 << 20, &stream).is_err());
    let exporter = exporter();
    exporter.add(&pool).expect("the only pool");
    let folder = std::env::temp_dir().join(format!("vrampool-textfile-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("batch.prom");
    std::fs::write(&file, "what was there before").expect("written");
    vrampool::telemetry::write_textfile(&file, &pool).expect("written");
    let text = std::fs::read_to_string(&file).expect("text");
    assert_metrics_together(&text);
    let served = scrape(&exporter);
    assert_eq!(samples(&text).keys().collect::<Vec<_>>(), served.keys().collect::<Vec<_>>());
    // Threads replace the file at the same time, and each read finds it complete.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    vrampool::telemetry::write_textfile(&file, &pool).expect("written");
                    let read = std::fs::read_to_string(&file).expect("text");
                    assert_eq!(read.lines().count(), text.lines().count());
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 1, "nothing else is left");
    let error = vrampool::telemetry::write_textfile(folder.join("none/batch.prom"), &pool);
    assert!(matches!(&error, Err(Error::Configuration(setting)) if setting.field == "textfile"), "{error:?}");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn an_address_in_use_is_a_typed_error() {
    assert!(DEFAULT_ADDRESS.ip().is_loopback(), "by default nothing is open to the network");
    let error = Publisher::start(Duration::ZERO).expect_err("without a pause");
    assert!(matches!(&error, Error::Configuration(setting) if setting.field == "interval"), "{error:?}");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = taken.local_addr().expect("bound");
    // Also inside an application's own runtime, where another one can be neither entered nor dropped.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let error = runtime.block_on(async { Exporter::listen(address).expect_err("in use") });
    assert!(matches!(&error, Error::Configuration(setting) if setting.field == "metrics"), "{error:?}");
    assert!(
        error.to_string().contains(&address.to_string()) && error.to_string().contains("choose another"),
        "{error}"
    );
}

#[test]
fn of_requests_past_the_magazines_one_in_509_is_timed() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).build().expect("a pool");
    let repeat = |bytes: u64, times: u64| {
        (0..times).for_each(|_| drop(pool.allocate(bytes, &stream).expect("memory")));
    };
    repeat(1000, 10 * 509);
    assert_eq!(pool.stats().allocation.count(), 0, "but for the first, magazines served");
    repeat(8 << 20, 10 * 509);
    let times = pool.stats().allocation;
    assert_eq!((times.count(), times.sum.is_zero()), (10, false));
    assert!(pool.stats().driver.count() < 10, "most were hits in the depot");
    for _ in 0..509 {
        drop(pool.allocate_timeout(8 << 20, &stream, Duration::MAX).expect("memory"));
    }
    assert_eq!(pool.stats().allocation.count(), 11, "and those that may wait");
    for _ in 0..509 {
        drop(pool.allocate_kind(8 << 20, Placement::HostVisible, &stream).expect("memory"));
    }
    assert_eq!(pool.stats().allocation.count(), 12, "and those of another kind");
    for _ in 0..509 {
        drop(vrampool::internal::allocate_ready(&pool, 8 << 20, &stream).expect("an idle block"));
    }
    assert_eq!(pool.stats().allocation.count(), 13, "and those that C and Python try first");
}
