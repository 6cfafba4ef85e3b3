//! Owners of other crates: a name is one series, which counts on from owner to owner and ends with last figures.
#![allow(unreachable_pub, reason = "`figures!` makes public structs")]

use super::{exporter, one, recorder, scrape, served_by};
use std::collections::BTreeMap;
use std::mem;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use vrampool::figures::FigureLabel;
use vrampool::host::HostDevice;
use vrampool::stats::Waits;
use vrampool::telemetry::{Exporter, Observed, Owner, OwnerFigures, Publisher, Watch};
use vrampool::{Backend, Pool, PoolStats};
use vrampool_test_support::samples;

vrampool::figures! {
    /// Figures of an owner.
    #[derive(Debug, Default)]
    pub struct OwnerStats("owner_", FigureLabel::None) {
        Counter calls: u64, "calls", "Calls.";
        Gauge held_bytes: u64, "bytes", "Bytes.";
    }
}

/// An owner, what a watch of it finds at each look, and its place.
struct Script(&'static str, Mutex<Vec<Observed>>, usize);

struct Course(Vec<Observed>, usize);

impl Owner for Script {
    type Device = HostDevice;

    const LABEL: &'static str = "owner";

    fn name(&self) -> &str {
        self.0
    }

    /// One for all, because it is a label.
    fn device(&self) -> &HostDevice {
        static DEVICE: OnceLock<HostDevice> = OnceLock::new();
        DEVICE.get_or_init(HostDevice::new)
    }

    fn figures(&self) -> OwnerFigures {
        OwnerFigures::default()
    }

    fn watch(&self) -> impl Watch + 'static {
        Course(mem::take(&mut self.1.lock().expect("no panic")), self.2)
    }
}

impl Watch for Course {
    fn observe(&mut self) -> Observed {
        if self.0.is_empty() { Observed::Ended(None) } else { self.0.remove(0) }
    }

    fn is_there(&self) -> bool {
        !matches!(self.0.first(), None | Some(Observed::Ended(_)))
    }

    fn place(&self) -> usize {
        self.1
    }
}

/// Serves an owner. Returns whether it was not served before.
fn add<const LOOKS: usize>(
    to: &Exporter,
    name: &'static str,
    course: [Observed; LOOKS],
    place: usize,
) -> bool {
    to.add(&Script(name, Mutex::new(course.into()), place)).is_ok()
}

fn figures(calls: u64) -> OwnerFigures {
    OwnerFigures::of(&OwnerStats { calls, held_bytes: 7 })
}

fn there(calls: u64) -> Observed {
    Observed::There(figures(calls), None)
}

fn ended(calls: u64) -> Observed {
    Observed::Ended(Some(figures(calls)))
}

/// Name, count and gauge of each series in the next scrape.
fn served(exporter: &Exporter) -> Vec<(String, f64, f64)> {
    let series = scrape(exporter);
    let calls = series.iter().filter_map(|(series, &calls)| {
        let name = series.strip_prefix("vrampool_owner_calls_total{owner=\"")?.split('"').next()?;
        Some((name.to_owned(), calls))
    });
    let held =
        |name: &str| one(&series, "vrampool_owner_held_bytes", &format!("owner=\"{name}\"")).expect("both");
    calls.map(|(name, calls)| (name.clone(), calls, held(&name))).collect()
}

#[test]
fn last_figures_are_served_twice() {
    let exporter = exporter();
    assert!(add(&exporter, "a", [there(1), Observed::Ending, ended(5)], 1));
    assert_eq!(served(&exporter), [("a".into(), 1.0, 7.0)]);
    assert_eq!(served(&exporter), [("a".into(), 1.0, 7.0)], "the last ones, while it is ending");
    assert_eq!([served(&exporter), served(&exporter)], [[("a".into(), 5.0, 0.0)], [("a".into(), 5.0, 0.0)]]);
    assert_eq!(served(&exporter), []);
    // An owner without last figures: those that were served last.
    assert!(add(&exporter, "b", [there(3), Observed::Ended(None)], 2));
    assert_eq!(served(&exporter), [("b".into(), 3.0, 7.0)]);
    assert_eq!(served(&exporter), [("b".into(), 3.0, 0.0)]);
}

#[test]
fn an_owner_that_nothing_is_known_of_leaves_what_was_counted_before_it() {
    let exporter = exporter();
    assert!(add(&exporter, "a", [ended(5)], 1));
    assert!(add(&exporter, "a", [Observed::Ended(None)], 2));
    assert!(add(&exporter, "a", [Observed::Ended(None)], 3));
    assert_eq!(served(&exporter), [("a".into(), 5.0, 0.0)]);
    assert!(add(&exporter, "a", [there(1)], 4));
    assert_eq!(served(&exporter), [("a".into(), 6.0, 7.0)]);
}

#[test]
fn the_next_of_a_series_counts_on() {
    let exporter = exporter();
    assert!(add(&exporter, "a", [ended(5)], 1));
    assert!(add(&exporter, "a", [there(2), ended(3)], 2), "no owner has the one before");
    assert_eq!(served(&exporter), [("a".into(), 7.0, 7.0)]);
    assert_eq!(served(&exporter), [("a".into(), 8.0, 0.0)]);
    assert!(add(&exporter, "a", [there(1)], 3));
    assert_eq!(served(&exporter), [("a".into(), 9.0, 7.0)]);
}

#[test]
fn an_owner_that_is_ending_keeps_its_name() {
    let exporter = exporter();
    assert!(add(&exporter, "a", [Observed::Ending, Observed::Ending], 1));
    assert!(add(&exporter, "a", [there(1), there(1)], 2));
    assert!(!add(&exporter, "a", [], 2), "it is served");
    assert_eq!(served(&exporter), [("a#2".into(), 1.0, 7.0)]);
}

/// The samples of an owner, without that label.
fn of_owner(series: &BTreeMap<String, f64>, name: &str) -> BTreeMap<String, f64> {
    let label = format!("owner=\"{name}\",");
    let own = series.iter().filter(|(series, _)| series.contains(&label));
    own.map(|(series, &value)| (series.replace(&label, ""), value)).collect()
}

/// Serves the second of two owners of a series, and another one with the sum of both. Returns its samples.
fn counting_on(
    exporter: &Exporter,
    [before, now, sum]: [OwnerFigures; 3],
    last: OwnerFigures,
) -> BTreeMap<String, f64> {
    assert!(add(exporter, "two", [Observed::Ended(Some(before))], 1));
    assert!(add(exporter, "two", [Observed::There(now, None), Observed::Ended(Some(last))], 2));
    assert!(add(exporter, "one", [Observed::There(sum, None)], 3));
    let series = scrape(exporter);
    assert_eq!(of_owner(&series, "two"), of_owner(&series, "one"));
    of_owner(&series, "one")
}

#[test]
fn counts_continue_and_nothing_else_does() {
    // Counts are `number`, peaks and caps `peak`, gauges `gauge`.
    let numbered = |number: u64, [peak, gauge]: [u64; 2]| {
        let mut stats = PoolStats::default();
        (stats.served.by_bucket, stats.failed.by_limit, stats.live_bytes) = (number, number, gauge);
        (stats.peak.live_bytes, stats.caps.limit_bytes) = (peak, Some(peak));
        OwnerFigures::of(&stats)
    };
    let exporter = exporter();
    let all = [numbered(100, [100, 100]), numbered(1, [1, 1]), numbered(101, [1, 1])];
    drop(counting_on(&exporter, all, numbered(1, [1, 1])));
    let last = of_owner(&scrape(&exporter), "two");
    let served = last.iter().find(|(series, _)| series.contains("layer=\"bucket\""));
    assert_eq!(served.map(|(_, &value)| value), Some(101.0), "{last:?}");
    assert_eq!(one(&last, "vrampool_live_bytes", ""), Some(0.0), "what has ended holds nothing");
    assert_eq!(one(&last, "vrampool_peak_live_bytes", ""), Some(1.0));
}

#[test]
fn a_histogram_counts_all_times_up_to_each_bound() {
    let waits = |times: u64| {
        let mut waits = Waits::default();
        (waits.within_10us, waits.within_100us, waits.within_10ms, waits.longer) =
            (2 * times, times, times, times);
        waits.sum = Duration::from_millis(200_002_026 * times);
        OwnerFigures::of(&waits)
    };
    let exporter = exporter();
    let found = counting_on(&exporter, [waits(1), waits(1), waits(2)], waits(1));
    let expected = [
        ("_bucket", "le=\"0.00001\"", 4.0),
        ("_bucket", "le=\"0.0001\"", 6.0),
        ("_bucket", "le=\"0.001\"", 6.0),
        ("_bucket", "le=\"0.01\"", 8.0),
        ("_bucket", "le=\"100\"", 8.0),
        ("_bucket", "le=\"+Inf\"", 10.0),
        ("_sum", "", 400_004.052),
        ("_count", "", 10.0),
    ];
    for (suffix, label, value) in expected {
        let begin = format!("vrampool_wait_seconds{suffix}{{");
        let is_it = |series: &&String| series.starts_with(&begin) && series.contains(label);
        let series: Vec<_> = found.keys().filter(is_it).collect();
        assert_eq!(series.iter().map(|series| found[*series]).collect::<Vec<_>>(), [value], "{series:?}");
    }
}

/// Of a name that is forgotten, a recorder's counter goes on once it has caught up.
#[test]
fn the_last_thousand_names_are_remembered_and_no_more() {
    let (recorder, handle) = recorder();
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let publisher = Publisher::start(Duration::from_secs(3600)).expect("a thread");
    let publish = || metrics::with_local_recorder(&recorder, || publisher.publish());
    let pool = |name: &str| {
        let pool = Pool::builder(&device).name(name).build().expect("a pool");
        publisher.add(&pool).expect("the previous pool was dropped");
        pool
    };
    let misses_after_one = || {
        let pool = pool("first");
        drop(pool.allocate(1, &stream).expect("memory"));
        publish();
        served_by(&samples(&handle.render()), ("first", &device), "driver")
    };
    assert_eq!([misses_after_one(), misses_after_one()], [Some(1.0), Some(2.0)]);
    (0..2000).for_each(|number| drop(pool(&format!("other-{number}"))));
    publish();
    assert_eq!(misses_after_one(), Some(2.0));
}
