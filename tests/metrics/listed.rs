//! The metrics that are listed are those that are exported.

use super::{holders, recorder};
use std::collections::BTreeSet;
use std::panic::Location;
use vrampool::figures::{Figure, FigureKind};
use vrampool::hooks::Holder;
use vrampool::host::HostDevice;
use vrampool::telemetry::{METRICS, describe, publish};
use vrampool::{Backend, Pool};
use vrampool_test_support::samples;

#[test]
fn exported_and_listed_are_the_same() {
    let (recorder, handle) = recorder();
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let lines = holders::Lines(vec![Holder::new(Location::caller(), 1, 1024)]);
    let pool = Pool::builder(&device).name("all").hook(lines).build().expect("a pool");
    let child = pool.child("its").build().expect("a pool");
    drop(child.allocate(1, &stream).expect("memory"));
    assert!(pool.allocate(u64::MAX, &stream).is_err(), "it has a time");
    metrics::with_local_recorder(&recorder, || {
        describe(&METRICS);
        publish(&pool);
    });
    let rendered = handle.render();
    let exported: BTreeSet<String> =
        samples(&rendered).keys().map(|name| name.split('{').next().unwrap_or_default().to_owned()).collect();
    let series: BTreeSet<String> = METRICS.iter().flat_map(series_of).collect();
    assert_eq!(exported, series, "what is published and what is listed");
    for figure in METRICS.iter() {
        let (metric, kind) = (figure.metric, figure.metric_type());
        let name = format!("{metric}{}", figure.series_suffix());
        // The facade knows counters of whole numbers, and its histograms are its own.
        let facade = if figure.kind == FigureKind::Counter { "counter" } else { "gauge" };
        assert!(rendered.contains(&format!("# TYPE {name} {facade}\n")), "{name}");
        assert!(rendered.contains(&format!("# HELP {name} ")), "{name}");
        assert_eq!(metric.ends_with("_total"), kind == "counter", "{name}");
        for label in ["pool", "backend", "device"].iter().copied().chain(figure.metric_label()) {
            let has_label = |series: &String| {
                series.starts_with(&format!("{name}{{")) && series.contains(&format!("{label}=\""))
            };
            assert!(samples(&rendered).keys().any(has_label), "{name} has no {label}");
        }
    }
}

/// The names of a figure's series.
fn series_of(figure: &&'static Figure) -> Vec<String> {
    let name = format!("{}{}", figure.metric, figure.series_suffix());
    match figure.series_suffix() {
        "_sum" => vec![name, format!("{}_count", figure.metric)],
        _ => vec![name],
    }
}
