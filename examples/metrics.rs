//! A pool in a program that has installed a recorder of the crate `metrics`: a `Publisher` copies the pool's
//! statistics to it. (Without a recorder, `telemetry::Exporter` serves them over HTTP by itself.)

use metrics_exporter_prometheus::PrometheusBuilder;
use std::error::Error;
use std::time::Duration;
use vrampool::any;
use vrampool::telemetry::Publisher;
use vrampool::{Backend, Pool};

fn main() -> Result<(), Box<dyn Error>> {
    // The program's recorder, before the publisher. Its crate `metrics` is the same version as vrampool's: 0.24.
    let recorder = PrometheusBuilder::new().build_recorder();
    let rendered = recorder.handle();
    metrics::set_global_recorder(recorder)?;

    let device = any::open("auto")?;
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).name("activations").limit(1 << 30).build()?;
    let publisher = Publisher::start(Duration::from_secs(5))?;
    publisher.add(&pool)?;

    for _ in 0..100 {
        drop(pool.allocate(40_000, &stream)?);
    }
    publisher.publish(); // now, without waiting for the interval
    for line in rendered.render().lines().filter(|line| line.starts_with("vrampool_hit")) {
        println!("{line}");
    }
    Ok(())
}
