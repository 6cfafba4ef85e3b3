//! The metrics of brokers, as an exporter serves them and as Prometheus reads them.

use super::recorder;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;
use vrampool::Pool;
use vrampool::host::HostDevice;
use vrampool::telemetry::{Exporter, Publisher, describe, publish};
use vrampool_broker::{Broker, Client, METRICS};
use vrampool_test_support::{assert_metrics_together, samples};

fn exporter() -> Exporter {
    Exporter::listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port")
}

fn get(exporter: &Exporter, accept: &str) -> String {
    let url = format!("http://{}/metrics", exporter.address());
    let served = ureq::get(url).header("Accept", accept).call().expect("served");
    served.into_body().read_to_string().expect("text")
}

#[test]
fn exported_and_listed_are_the_same() {
    let (recorder, handle) = recorder();
    let broker = Broker::builder(&Pool::new(&HostDevice::new()).expect("a pool"))
        .name("all")
        .build()
        .expect("a broker");
    let _client = broker.register(Client::new("client")).expect("a client");
    metrics::with_local_recorder(&recorder, || {
        describe(&METRICS);
        publish(&broker);
    });
    let rendered = handle.render();
    let exported: BTreeSet<String> =
        samples(&rendered).keys().map(|name| name.split('{').next().unwrap_or_default().to_owned()).collect();
    let listed: BTreeSet<String> = METRICS.iter().map(|figure| figure.metric.to_owned()).collect();
    assert_eq!(exported, listed, "what is published and what is listed");
    for figure in METRICS.iter() {
        let (name, kind) = (figure.metric, figure.metric_type());
        assert!(rendered.contains(&format!("# TYPE {name} {kind}\n")), "{name}");
        assert!(rendered.contains(&format!("# HELP {name} ")), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        for label in ["broker", "backend", "device"].iter().copied().chain(figure.metric_label()) {
            let has_label = |series: &String| {
                series.starts_with(&format!("{name}{{")) && series.contains(&format!("{label}=\""))
            };
            assert!(samples(&rendered).keys().any(has_label), "{name} has no {label}");
        }
    }
}

/// A pool and a broker of one name are two series; each metric's samples stand together, under one head.
#[test]
fn pools_and_brokers_are_served_together() {
    let (device, exporter) = (HostDevice::new(), exporter());
    let pool = Pool::builder(&device).name("same").build().expect("a pool");
    let brokers = [(); 2].map(|()| {
        Broker::builder(&Pool::new(&device).expect("a pool")).name("same").build().expect("a broker")
    });
    let _clients = brokers.each_ref().map(|broker| broker.register(Client::new("client")).expect("a client"));
    exporter.add(&pool).expect("the only pool");
    brokers.iter().for_each(|broker| exporter.add(broker).expect("each once"));
    let plain = get(&exporter, "text/plain");
    let open = get(&exporter, "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.3");
    assert_eq!(samples(&plain), samples(&open));
    assert!(open.contains("# TYPE vrampool_broker_runs counter\n"), "{open}");
    for start in [
        "vrampool_served_total{pool=\"same\"",
        "vrampool_broker_runs_total{broker=\"same\"",
        "vrampool_broker_runs_total{broker=\"same#2\"",
    ] {
        assert!(plain.lines().any(|line| line.starts_with(start)), "{start}: {plain}");
    }
    assert_metrics_together(&plain);
    assert_metrics_together(&open);
}

/// A publisher observes a broker just when its last handle is dropped, and the next one comes.
#[test]
fn a_name_is_free_once_its_owner_dropped_it_also_while_others_publish() {
    const ROUNDS: u64 = 500;
    let (recorder, handle) = recorder();
    let device = HostDevice::new();
    let publishers = [(); 2].map(|()| Publisher::start(Duration::from_secs(3600)).expect("a thread"));
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            for _ in 0..ROUNDS {
                let broker = Broker::builder(&Pool::new(&device).expect("a pool"))
                    .name("again")
                    .build()
                    .expect("a broker");
                for publisher in &publishers {
                    publisher.add(&broker).expect("the broker before has ended");
                }
                broker.commit("no group").expect_err("nothing is queued");
            }
        });
        while !owner.is_finished() {
            for publisher in &publishers {
                metrics::with_local_recorder(&recorder, || publisher.publish());
            }
        }
        owner.join().expect("no name was taken");
    });
    // One of each broker's, and none counted twice.
    let series = samples(&handle.render());
    let name = "vrampool_broker_commits_refused_total{broker=\"again\"";
    let refused = series.iter().filter(|(found, _)| found.starts_with(name));
    assert!(refused.map(|(_, &count)| count).sum::<f64>() <= ROUNDS as f64);
}
