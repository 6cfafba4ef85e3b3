//! Totals of pools that follow one another under one name, against a naive sum of what each counted.

use super::{exporter, scrape};
use proptest::prelude::*;
use std::collections::BTreeMap;
use vrampool::figures::{Figure, FigureKind, FigureLabel, FigureValue, Group};
use vrampool::host::HostDevice;
use vrampool::stats::DriverTimes;
use vrampool::telemetry::METRICS;
use vrampool::{Backend, Buffer, Pool, PoolStats, SizeClasses, Source};
use vrampool_test_support::has_virtual_memory;

const KIB: u64 = 1024;
const NAMES: [&str; 2] = ["one", "two"];

#[derive(Debug, Clone)]
enum Step {
    Allocate { pool: usize, bytes: u64, stream: usize },
    Drop(usize),
    Trim(usize),
    // No handle is left; the next of its name has another source.
    Replace { pool: usize, source: usize, is_published_before: bool },
    Publish,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sizes = prop_oneof![Just(0), 1..9 * KIB, 1..300 * KIB, Just(2 * KIB * KIB)];
    let step = prop_oneof![
        8 => (0..2usize, sizes, 0..2usize).prop_map(|(pool, bytes, stream)| Step::Allocate { pool, bytes, stream }),
        6 => any::<usize>().prop_map(Step::Drop),
        1 => (0..2usize).prop_map(Step::Trim),
        2 => (0..2usize, any::<usize>(), any::<bool>()).prop_map(|(pool, source, is_published_before)| {
            Step::Replace { pool, source, is_published_before }
        }),
        2 => Just(Step::Publish),
    ];
    prop::collection::vec(step, 1..100)
}

/// The counts of a pool, by metric and label.
fn counts(stats: &PoolStats) -> BTreeMap<String, u64> {
    let counters = stats.figures().into_iter().filter(|(figure, _)| {
        figure.kind == FigureKind::Counter && !matches!(figure.label, FigureLabel::Histogram(..))
    });
    let count = |(figure, value): (&Figure, _)| {
        let label = if matches!(figure.label, FigureLabel::Split(..)) { figure.short } else { "" };
        let FigureValue::Number(count) = value else { panic!("a counter is a number") };
        (format!("{}{label}", figure.metric), count)
    };
    let mut counts: BTreeMap<_, _> = counters.map(count).collect();
    counts.insert("vrampool_wait_seconds_count".into(), stats.waits.count());
    counts.insert("vrampool_driver_seconds_count".into(), stats.driver.count());
    counts.insert("vrampool_allocation_seconds_count".into(), stats.allocation.count());
    counts.insert("vrampool_driver_seconds_bucket0.01".into(), stats.driver.count() - slow(&stats.driver));
    for bucket in &stats.buckets {
        counts.insert(format!("vrampool_bucket_hits_total{}", bucket.class), bucket.hits);
        counts.insert(format!("vrampool_bucket_misses_total{}", bucket.class), bucket.misses);
    }
    counts
}

/// The number of times above 10 ms.
fn slow(times: &DriverTimes) -> u64 {
    times.within_100ms + times.within_1s + times.within_10s + times.within_100s + times.longer
}

/// As [`counts`], of what was published under a name.
fn published(series: &BTreeMap<String, f64>, name: &str) -> BTreeMap<String, u64> {
    let is_counter = |metric: &str| {
        let is_count = |figure: &&&Figure| figure.metric == metric && figure.kind == FigureKind::Counter;
        metric.ends_with("_seconds_count") || METRICS.iter().any(|figure| is_count(&figure))
    };
    let is_bound = |metric: &str, labels: &str| {
        metric == "vrampool_driver_seconds_bucket" && labels.contains("le=\"0.01\"")
    };
    let mut found = BTreeMap::new();
    for (series, &value) in series {
        let (metric, labels) = series.split_once('{').expect("labels");
        if !(is_counter(metric) || is_bound(metric, labels)) || !labels.contains(&format!("pool=\"{name}\""))
        {
            continue;
        }
        let of_its_own = labels.trim_end_matches('}').split(',').find(|label| {
            ["bucket=", "layer=", "rung=", "reason=", "call=", "le="]
                .iter()
                .any(|start| label.starts_with(start))
        });
        let label = of_its_own.and_then(|label| label.split('"').nth(1)).unwrap_or_default();
        found.insert(format!("{metric}{label}"), value as u64);
    }
    found
}

fn sum(totals: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    more.iter().for_each(|(name, count)| *totals.entry(name.clone()).or_default() += count);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn pools_of_one_name_count_on_whatever_serves_them(steps in steps()) {
        let device = HostDevice::builder().memory_limit(1 << 26).granularity(4 * KIB).build();
        let streams = [(); 2].map(|()| device.create_stream().expect("a stream"));
        let mut sources = Source::ALL.to_vec();
        sources.retain(|&source| source != Source::Virtual || has_virtual_memory(&device));
        let build = |name: usize, source: usize| {
            let builder = Pool::builder(&device).name(NAMES[name]).max_cached_bytes(200 * KIB);
            let builder = builder.max_buffers_per_bucket(2).size_classes(SizeClasses::PowerOfTwo);
            builder.source(sources[source % sources.len()]).limit(1 << 20).build().expect("a pool")
        };
        // It scrapes in no other round than those of this thread: nothing else has a pool that ends.
        let exporter = exporter();
        let mut pools = [build(0, 0), build(1, 1)];
        pools.iter().for_each(|pool| exporter.add(pool).expect("the only one"));
        let mut ended = [(); 2].map(|()| BTreeMap::new());
        let mut live: Vec<(usize, Buffer<HostDevice>)> = Vec::new();
        let check = |pools: &[Pool<HostDevice>; 2], ended: &[BTreeMap<String, u64>; 2]| {
            let series = scrape(&exporter);
            for (number, name) in NAMES.iter().enumerate() {
                let mut expected = ended[number].clone();
                sum(&mut expected, &counts(&pools[number].stats()));
                prop_assert_eq!(published(&series, name), expected, "{}", name);
            }
            Ok(())
        };
        for step in steps {
            match step {
                Step::Allocate { pool, bytes, stream } => {
                    live.extend(pools[pool].allocate(bytes, &streams[stream]).map(|buffer| (pool, buffer)));
                }
                Step::Drop(which) if !live.is_empty() => drop(live.swap_remove(which % live.len())),
                Step::Drop(_) => {}
                Step::Trim(pool) => _ = pools[pool].trim().expect("a trim"),
                Step::Replace { pool, source, is_published_before } => {
                    live.retain(|(of, _)| *of != pool);
                    pools[pool].trim().expect("a trim");
                    sum(&mut ended[pool], &counts(&pools[pool].stats()));
                    // Another of its name would be `NAME#2` as long as it is there.
                    pools[pool] = Pool::builder(&device).name("neither").build().expect("a pool");
                    if is_published_before {
                        drop(scrape(&exporter));
                    }
                    pools[pool] = build(pool, source);
                    exporter.add(&pools[pool]).expect("the previous pool was dropped");
                }
                Step::Publish => check(&pools, &ended)?,
            }
        }
        check(&pools, &ended)?;
    }
}
