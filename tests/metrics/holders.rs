//! The holders of memory: children by tag, and lines of code where a hook counts them.

use super::{exporter, one, scrape};
use std::collections::BTreeMap;
use std::panic::Location;
use vrampool::hooks::{Holder, Hook};
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool};

/// A hook that has counted these lines.
#[derive(Debug)]
pub(super) struct Lines(pub(super) Vec<Holder>);

impl Hook for Lines {
    fn name(&self) -> &str {
        "lines"
    }

    fn holders(&self) -> Vec<Holder> {
        self.0.clone()
    }
}

/// The values of a metric by the value of its label, which is the last one.
fn by<'a>(series: &'a BTreeMap<String, f64>, metric: &str, label: &str) -> BTreeMap<&'a str, f64> {
    let begin = format!("{metric}{{");
    let of_metric = series.iter().filter(|(name, _)| name.starts_with(&begin));
    of_metric
        .map(|(name, &value)| {
            let value_of = |rest: &'a str| rest.split('"').next().expect("a value");
            let (_, rest) = name.split_once(&format!("{label}=\"")).expect("its label");
            (value_of(rest), value)
        })
        .collect()
}

#[test]
fn live_bytes_are_those_of_all_tags_together() {
    let (exporter, device) = (exporter(), HostDevice::new());
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).name("tags").build().expect("a pool");
    exporter.add(&pool).expect("a thread");
    let own = pool.allocate(1000, &stream).expect("memory");
    assert_eq!(by(&scrape(&exporter), "vrampool_child_live_bytes", "child").len(), 0, "it has no children");
    let [decode, again, prefill] =
        ["decode", "decode", "prefill"].map(|tag| pool.child(tag).build().expect("a pool"));
    for child in [&decode, &again] {
        child.set_limit(100_000).expect("no share");
    }
    prefill.set_share(5000).expect("no limit");
    let live = decode.allocate(1000, &stream).expect("memory");
    let more = again.allocate(60_000, &stream).expect("memory");
    drop(prefill.allocate(1000, &stream).expect("memory"));
    let series = scrape(&exporter);
    let [bytes, idle, buffers, limits, shares] =
        ["live_bytes", "idle_bytes", "live_buffers", "limit_bytes", "share_bytes"]
            .map(|name| by(&series, &format!("vrampool_child_{name}"), "child"));
    assert_eq!(bytes, BTreeMap::from([("decode", 66_560.0), ("other", 1024.0), ("prefill", 0.0)]));
    assert_eq!(idle, BTreeMap::from([("decode", 0.0), ("other", 0.0), ("prefill", 1024.0)]));
    assert_eq!(buffers, BTreeMap::from([("decode", 2.0), ("other", 1.0), ("prefill", 0.0)]));
    let limits_and_shares =
        [("decode", 200_000.0, 0.0), ("other", f64::INFINITY, 0.0), ("prefill", f64::INFINITY, 5000.0)];
    assert_eq!(limits, limits_and_shares.map(|(tag, limit, _)| (tag, limit)).into());
    assert_eq!(shares, limits_and_shares.map(|(tag, _, share)| (tag, share)).into());
    for (name, all) in [("live", &bytes), ("idle", &idle)] {
        let of_pool = one(&series, &format!("vrampool_{name}_bytes"), "pool=\"tags\"");
        assert_eq!(of_pool, Some(all.values().sum()), "{name}");
    }
    // A buffer may live longer than its child.
    drop((decode, prefill, own));
    let series = scrape(&exporter);
    let bytes = by(&series, "vrampool_child_live_bytes", "child");
    assert_eq!(bytes, BTreeMap::from([("decode", 66_560.0), ("other", 0.0)]));
    drop((live, more, again));
    assert_eq!(by(&scrape(&exporter), "vrampool_child_live_bytes", "child").len(), 0, "it has no children");
}

#[test]
fn children_beyond_the_largest_are_one() {
    let (exporter, device) = (exporter(), HostDevice::new());
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).name("many").build().expect("a pool");
    exporter.add(&pool).expect("a thread");
    let children: Vec<_> =
        (0..20).map(|number| pool.child(format!("tag {number:02}")).build().expect("a pool")).collect();
    // The first four have least.
    let buffer = |number: usize| children[number].allocate(if number < 4 { 1000 } else { 4000 }, &stream);
    let live: Vec<_> = (0..20).map(|number| buffer(number).expect("memory")).collect();
    let named_other = pool.child("other").build().expect("a pool");
    let other = named_other.allocate(60_000, &stream).expect("memory");
    let series = scrape(&exporter);
    let bytes = by(&series, "vrampool_child_live_bytes", "child");
    assert_eq!(bytes.len(), 16, "{bytes:?}");
    assert!(bytes.keys().all(|tag| *tag == "other" || *tag >= "tag 04"), "{bytes:?}");
    let all = bytes.values().sum();
    assert_eq!(one(&series, "vrampool_live_bytes", "pool=\"many\""), Some(all));
    drop((live, other));
}

#[test]
fn lines_of_code_are_named_where_a_hook_counts_them() {
    let (exporter, device) = (exporter(), HostDevice::new());
    let site = Location::caller();
    let lines = Lines(vec![Holder::new(site, 3, 7000)]);
    let pool = Pool::builder(&device).name("lines").hook(lines).build().expect("a pool");
    exporter.add(&pool).expect("a thread");
    let series = scrape(&exporter);
    let site = site.to_string();
    let expected = |value| BTreeMap::from([(site.as_str(), value), ("other", 0.0)]);
    assert_eq!(by(&series, "vrampool_site_live_bytes", "site"), expected(7000.0));
    assert_eq!(by(&series, "vrampool_site_live_buffers", "site"), expected(3.0));
}
