//! A pool of a name is one series, from its first scrape until its last figures were seen.

use super::{exporter, one, recorder, scrape};
use std::time::Duration;
use vrampool::host::HostDevice;
use vrampool::telemetry::Publisher;
use vrampool::{Backend, Pool};
use vrampool_test_support::samples;

/// With the first, and without it.
#[test]
fn thousands_of_dropped_pools_vanish_once_their_last_figures_were_seen() {
    const POOLS: usize = 5000;
    let (device, exporter) = (HostDevice::new(), exporter());
    let pools: Vec<_> = (0..POOLS)
        .map(|number| {
            let pool = Pool::builder(&device).name(format!("pool-{number}")).build().expect("a pool");
            exporter.add(&pool).expect("a name of its own");
            pool
        })
        .collect();
    drop(pools);
    let ends = || {
        let served = ureq::get(format!("http://{}/metrics", exporter.address())).call().expect("served");
        let body = served.into_body().into_with_config().limit(u64::MAX);
        let text = body.read_to_string().expect("text");
        text.lines().filter(|line| line.starts_with("vrampool_held_bytes{")).count()
    };
    assert_eq!([ends(), ends(), ends()], [POOLS, POOLS, 0]);
}

#[test]
fn a_second_pool_of_a_name_is_served_too() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let exporter = exporter();
    let pool = || Pool::builder(&device).name("same").build().expect("a pool");
    let (first, second) = (pool(), pool());
    exporter.add(&first).expect("the first");
    exporter.add(&second).expect("the second");
    exporter.add(&second.clone()).expect_err("it is served");
    let _live = second.allocate(1000, &stream).expect("memory");
    let live = |name: &str| one(&scrape(&exporter), "vrampool_live_bytes", &format!("pool=\"{name}\""));
    assert_eq!((live("same"), live("same#2")), (Some(0.0), Some(1024.0)));
    drop(first);
    assert_eq!(live("same#2"), Some(1024.0));
    let third = pool();
    exporter.add(&third).expect("the first one's place is free");
    assert_eq!((live("same"), live("same#2"), live("same#3")), (Some(0.0), Some(1024.0), None));
}

#[test]
fn each_name_is_a_series_of_its_own() {
    let device = HostDevice::new();
    let exporter = exporter();
    let names = ["\"", "\\\"", "\\", "\\\\", "a\\n", "a\n"];
    let pools = names.map(|name| Pool::builder(&device).name(name).build().expect("a pool"));
    pools.iter().for_each(|pool| exporter.add(pool).expect("a name of its own"));
    let series = scrape(&exporter);
    for name in names {
        let escaped = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let start = format!("vrampool_live_bytes{{pool=\"{escaped}\",");
        assert_eq!(series.keys().filter(|name| name.starts_with(&start)).count(), 1, "{start}");
    }
}

fn is_served(series: &str, by: &str) -> bool {
    series.starts_with("vrampool_served_total{pool=\"again\"") && series.contains(&format!("layer=\"{by}\""))
}

/// A publisher reads a pool while its last handle is dropped and the next pool is added.
#[test]
fn a_name_is_free_once_its_owner_dropped_it_also_while_others_publish() {
    const ROUNDS: u64 = 500;
    let (recorder, handle) = recorder();
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let publishers = [(); 2].map(|()| Publisher::start(Duration::from_secs(3600)).expect("a thread"));
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            for _ in 0..ROUNDS {
                let pool = Pool::builder(&device).name("again").build().expect("a pool");
                for publisher in &publishers {
                    publisher.add(&pool).expect("the previous pool was dropped");
                }
                drop(pool.allocate(1, &stream).expect("memory"));
            }
        });
        while !owner.is_finished() {
            for publisher in &publishers {
                metrics::with_local_recorder(&recorder, || publisher.publish());
            }
        }
        owner.join().expect("no name was taken");
    });
    // One of each pool's, and none counted twice.
    let series = samples(&handle.render());
    let misses = series.iter().filter(|(name, _)| is_served(name, "driver"));
    assert!(misses.map(|(_, &misses)| misses).sum::<f64>() <= ROUNDS as f64);
}
