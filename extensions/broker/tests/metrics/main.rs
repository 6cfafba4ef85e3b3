//! A broker exports its figures and those of its clients.
#![cfg(feature = "metrics")]

mod served;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use std::time::Duration;
use vrampool::host::HostDevice;
use vrampool::telemetry::{Publisher, publish};
use vrampool::{Backend, Pool};
use vrampool_broker::{ArrayRequest, Broker, Client, ClientHandle, HostBacking, Plan, Share};
use vrampool_test_support::samples;

fn recorder() -> (PrometheusRecorder, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    (recorder, handle)
}

/// A client in a separate group, and its plan that holds `bytes` in total, in chunks of 100 runs.
fn holder(
    broker: &Broker<HostDevice>,
    name: &str,
    bytes: u64,
) -> (ClientHandle<HostDevice>, Plan<HostDevice>) {
    let client = broker.register(Client::new(name).group(name)).expect("a client");
    client.queue(ArrayRequest::scratch("x", [1000, bytes / 100], 1)).expect("queued");
    broker.set_chunk_runs(name, 100).expect("idle");
    let plan = broker.commit(name).expect("it fits");
    (client, plan)
}

#[test]
fn the_figures_are_the_brokers_own() {
    let (recorder, handle) = recorder();
    let device = HostDevice::builder().memory_limit(1 << 20).build();
    let pool = Pool::builder(&device).name("parent").build().expect("a pool");
    let builder = Broker::builder(&pool).name("figures").reserve(1 << 10).pinned_max(1 << 16);
    let broker = builder.build().expect("a broker");
    let (one, plan) = holder(&broker, "one", 600 << 10);
    let twin = broker.register(Client::new("one").group("twin")).expect("a client");
    twin.queue(ArrayRequest::scratch("x", [10], 1)).expect("queued");
    plan.run(|_, _| Ok(())).expect("a run");
    assert!(
        plan.run(|_, _| Err(vrampool::BackendError::invalid("work", "it is the test's").into())).is_err()
    );
    // It takes back what the first has.
    let (two, _plan) = holder(&broker, "two", 700 << 10);
    two.set_share(Share::Fixed(0.5)).expect("a share");
    let _file = broker.host_array_in(12_345, HostBacking::File).expect("an array");
    let _pinned = broker.host_array_in(4096, HostBacking::Pinned).expect("an array");
    assert!(broker.commit("no group").is_err());
    metrics::with_local_recorder(&recorder, || {
        publish(&broker);
        publish(&pool);
    });
    let series = samples(&handle.render());
    let labels = format!("broker=\"figures\",backend=\"host\",device=\"{}\"", device.id().key);
    let value = |name: &str, more: &str| {
        let name = format!("vrampool_broker_{name}{{{labels}{more}}}");
        *series.get(&name).unwrap_or_else(|| panic!("no {name} in {series:#?}"))
    };
    let held = two.stats().held_bytes as f64;
    let child = |name: &str| {
        let name = format!("vrampool_child_{name}{{pool=\"parent\",");
        let found = series.iter().find(|(of, _)| of.starts_with(&name) && of.contains("child=\"figures\""));
        found.map(|(_, &value)| value)
    };
    assert_eq!((child("live_bytes"), child("limit_bytes")), (Some(held), Some(f64::INFINITY)));
    assert!(held >= 700.0 * 1024.0);
    assert_eq!((value("clients", ""), value("held_bytes", "")), (3.0, held));
    assert_eq!((value("budget_bytes", ""), value("reserve_bytes", "")), (f64::INFINITY, 1024.0));
    assert_eq!((value("spilled_bytes", ""), value("pinned_budget_bytes", "")), (12_345.0, 65_536.0));
    assert_eq!(value("pinned_live_bytes", ""), 4096.0);
    assert_eq!(value("pinned_retained_bytes", ""), 0.0);
    // Two by hand, and one that each run begins with.
    assert_eq!(value("commits_granted_total", ""), 4.0);
    assert_eq!(value("commits_short_total", ""), 0.0);
    assert_eq!(value("commits_refused_total", ""), 1.0);
    assert_eq!((value("runs_total", ""), value("failed_runs_total", "")), (1.0, 1.0));
    assert_eq!((value("chunks_total", ""), value("shrinks_total", "")), (10.0, 0.0));
    assert_eq!((value("evictions_total", ""), value("copied_bytes_total", "")), (1.0, 0.0));
    assert_eq!(value("evicted_bytes_total", ""), one.stats().peak_held_bytes as f64);
    // Clients of one name together; its automatic share is a quarter of the device.
    assert_eq!(value("client_cap_bytes", ",client=\"one\""), 524_288.0);
    assert_eq!(value("client_cap_bytes", ",client=\"two\""), 524_288.0);
    assert_eq!(
        (value("client_held_bytes", ",client=\"one\""), value("client_held_bytes", ",client=\"two\"")),
        (0.0, held)
    );
    assert_eq!(value("client_peak_held_bytes", ",client=\"one\""), one.stats().peak_held_bytes as f64);
    assert_eq!(value("client_queued", ",client=\"one\""), 1.0);
    assert_eq!(
        (value("client_evictions_total", ",client=\"one\""), value("client_chunks_total", ",client=\"one\"")),
        (1.0, 10.0)
    );
    assert_eq!(
        (value("client_evictions_total", ",client=\"two\""), value("client_chunks_total", ",client=\"two\"")),
        (0.0, 0.0)
    );
}

/// Those of a client and of a broker that have ended stay as they were, and the next of the name goes on there;
/// what they held is none.
#[test]
fn counters_of_clients_and_brokers_that_have_ended_do_not_fall() {
    let (recorder, handle) = recorder();
    let device = HostDevice::builder().memory_limit(1 << 20).build();
    let publisher = Publisher::start(Duration::from_secs(3600)).expect("a thread");
    let value = |name: &str| {
        metrics::with_local_recorder(&recorder, || publisher.publish());
        let series = samples(&handle.render());
        let found = series.iter().find(|(found, _)| found.starts_with(&format!("{name}{{broker=\"again\"")));
        found.map(|(_, &value)| value)
    };
    let mut chunks = 0.0;
    for _ in 0..2 {
        let broker =
            Broker::builder(&Pool::new(&device).expect("a pool")).name("again").build().expect("a broker");
        publisher.add(&broker).expect("the one before has ended");
        let error = publisher.add(&broker.clone()).expect_err("the same broker twice");
        assert!(error.to_string().contains("add each broker once"), "{error}");
        for _ in 0..2 {
            let (client, plan) = holder(&broker, "client", 1000);
            plan.run(|_, _| Ok(())).expect("a run");
            chunks += 10.0;
            assert_eq!(value("vrampool_broker_client_chunks_total"), Some(chunks));
            assert_eq!(value("vrampool_broker_chunks_total"), Some(chunks));
            assert_eq!(value("vrampool_broker_client_held_bytes"), Some(client.stats().held_bytes as f64));
            drop((client, plan));
            assert_eq!(value("vrampool_broker_client_held_bytes"), Some(0.0));
            assert_eq!(value("vrampool_broker_client_chunks_total"), Some(chunks));
        }
        let last = holder(&broker, "last", 1000);
        assert_eq!(value("vrampool_broker_clients"), Some(1.0));
        drop((last, broker));
        assert_eq!(value("vrampool_broker_clients"), Some(0.0));
        assert_eq!(value("vrampool_broker_held_bytes"), Some(0.0));
        assert_eq!(value("vrampool_broker_chunks_total"), Some(chunks));
    }
}
