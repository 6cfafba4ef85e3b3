//! A scrape of an exporter that serves many pools, over HTTP:
//! `cargo bench --features prometheus --bench scrape`.

use criterion::Criterion;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;
use vrampool::host::HostDevice;
use vrampool::telemetry::Exporter;
use vrampool::{Backend, Pool};

fn main() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let mut criterion =
        Criterion::default().sample_size(10).measurement_time(Duration::from_secs(5)).configure_from_args();
    for count in [1, 100, 10_000] {
        let exporter = Exporter::listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let pools: Vec<_> = (0..count)
            .map(|number| {
                let pool = Pool::builder(&device).name(format!("pool-{number}")).build().expect("a pool");
                drop(pool.allocate(1000, &stream).expect("memory"));
                exporter.add(&pool).expect("a name of its own");
                pool
            })
            .collect();
        let url = format!("http://{}/metrics", exporter.address());
        criterion.bench_function(&format!("scrape/{count} pools"), |bencher| {
            bencher.iter(|| {
                let answer = ureq::get(&url).call().expect("served");
                let text =
                    answer.into_body().into_with_config().limit(u64::MAX).read_to_string().expect("text");
                black_box(text.len())
            });
        });
        drop(pools);
    }
}
