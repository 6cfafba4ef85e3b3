//! Figures of pools: gauges as they are exported, and rates between two readings.

use serde::Serialize;
use std::collections::BTreeMap;

/// A pool, or a bucket or child of one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(super) struct Key {
    pub(super) pool: String,
    pub(super) device: String,
    /// A class in bytes; unset for a pool or child, which stand before.
    #[serde(skip)]
    pub(super) class: Option<u64>,
    /// A class, or the name of a child; unset for a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) part: Option<String>,
}

/// Values by metric, without the prefix of all. A reason, layer or rung stands behind a space.
pub(super) type Values = BTreeMap<String, f64>;

/// The values of all pools and their parts.
pub(super) type Reading = BTreeMap<Key, Values>;

/// A colour of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Green,
    Yellow,
    Red,
}

/// The colours of a figure, each with its least value.
type Steps = &'static [(f64, Level)];

/// Panels of `grafana/dashboards/vrampool.json`, the figure of each, and its colours.
const PANELS: [(&str, &str, Steps); 4] = [
    (
        "Hit rate (worst pool)",
        "hit_rate",
        &[(f64::MIN, Level::Red), (0.55, Level::Yellow), (0.9, Level::Green)],
    ),
    (
        "Live of limit (fullest pool)",
        "live_of_limit",
        &[(f64::MIN, Level::Green), (0.75, Level::Yellow), (0.9, Level::Red)],
    ),
    (
        "Device memory free (least)",
        "device_free",
        &[(f64::MIN, Level::Red), (0.05, Level::Yellow), (0.1, Level::Green)],
    ),
    ("Failed allocations", "failed_requests", &[(f64::MIN, Level::Green), (1.0, Level::Red)]),
];

/// A line of the table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    /// The position of its exporter, because exporters of other paths may have the same name.
    #[serde(skip)]
    pub(super) at: usize,
    pub(super) exporter: String,
    #[serde(flatten)]
    pub(super) key: Key,
    /// Missing where they are unset or unknown. Rates are per second; failures are those since the reading before.
    #[serde(flatten)]
    pub(super) figures: BTreeMap<&'static str, f64>,
    /// The colours of a pool's figures that are not green.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) levels: BTreeMap<&'static str, Level>,
}

impl Row {
    /// Creates a row from the values `now`, and earlier values with their age in seconds.
    pub(super) fn new(
        (at, exporter): (usize, &str),
        key: &Key,
        now: &Values,
        before: Option<(&Values, f64)>,
    ) -> Self {
        let get = |metric: &str| now.get(metric).copied().filter(|value| value.is_finite());
        // Of one part of a metric, or of all. A counter that fell was reset.
        let increase = |metric: &str| {
            let (before, _) = before?;
            let is_of = |name: &str| {
                name.strip_prefix(metric).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            let more = |(name, now): (&String, &f64)| {
                now - before.get(name).filter(|before| *before <= now).unwrap_or(&0.0)
            };
            let parts = now.iter().filter(|(name, _)| is_of(name)).map(more);
            parts.reduce(|one, two| one + two)
        };
        let rate = |metric: &str| Some(increase(metric)? / before?.1);
        let ratio =
            |part: f64, whole: Option<f64>| whole.filter(|whole| *whole > 0.0).map(|whole| part / whole);
        let of_bucket = rate("hits_total").zip(rate("misses_total"));
        let requests = rate("served_total").or(of_bucket.map(|(hits, misses)| hits + misses));
        let live = get("live_bytes");
        let figures = [
            ("hit_rate", rate("served_total driver").and_then(|calls| ratio(requests? - calls, requests))),
            (
                "bucket_hit_rate",
                rate("served_total bucket").or(rate("hits_total")).and_then(|hits| ratio(hits, requests)),
            ),
            ("live_bytes", live),
            (
                "held_bytes",
                get("held_bytes").or(get("idle_bytes").map(|idle| idle + live.unwrap_or_default())),
            ),
            ("reserved_bytes", get("reserved_bytes")),
            ("limit_bytes", get("limit_bytes")),
            ("budget_bytes", get("budget_bytes")),
            ("share_bytes", get("share_bytes")),
            (
                "live_of_limit",
                live.and_then(|live| ratio(live, get("limit_bytes").or(get("device_total_bytes")))),
            ),
            ("device_free", get("device_free_bytes").and_then(|free| ratio(free, get("device_total_bytes")))),
            ("requests_rate", requests),
            ("driver_calls_rate", rate("memory_calls_total")),
            ("stream_waits_rate", rate("stream_waits_total")),
            (
                "rungs_rate",
                rate("rungs_total").map(|rungs| rungs - rate("rungs_total fail").unwrap_or_default()),
            ),
            ("waiting_requests", get("waiting_requests")),
            ("failed_requests", increase("failed_total")),
        ];
        let known = figures
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.filter(|value| value.is_finite())?)));
        let figures: BTreeMap<_, _> = known.collect();
        let levels = PANELS.iter().filter(|_| key.part.is_none()).filter_map(|(_, name, steps)| {
            let value = figures.get(name)?;
            let (_, level) = steps.iter().rfind(|(from, _)| from <= value)?;
            (*level > Level::Green).then_some((*name, *level))
        });
        let (exporter, levels) = (exporter.to_owned(), levels.collect());
        Self { at, exporter, key: key.clone(), figures, levels }
    }

    pub(super) fn get(&self, figure: &str) -> Option<f64> {
        self.figures.get(figure).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_the_dashboard() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../grafana/dashboards/vrampool.json");
        let text = std::fs::read_to_string(path).expect("the dashboard");
        let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        for (title, _, steps) in PANELS {
            let panel = panels.iter().find(|panel| panel["title"] == title).expect(title);
            let steps: Vec<_> = steps
                .iter()
                .map(|(from, level)| {
                    let from = Some(*from).filter(|from| *from > f64::MIN);
                    serde_json::json!({ "color": level, "value": from })
                })
                .collect();
            let expected = &panel["fieldConfig"]["defaults"]["thresholds"]["steps"];
            let numbers = |steps: &[serde_json::Value]| -> Vec<_> {
                steps.iter().map(|step| (step["color"].clone(), step["value"].as_f64())).collect()
            };
            assert_eq!(numbers(&steps), numbers(expected.as_array().expect("steps")), "{title}");
        }
    }

    #[test]
    fn rates_are_of_two_readings() {
        let key = Key { pool: "a".into(), device: "host:0".into(), class: None, part: None };
        let values = |pairs: &[(&str, f64)]| -> Values {
            pairs.iter().map(|(name, value)| ((*name).into(), *value)).collect()
        };
        let before = values(&[
            ("served_total bucket", 10.0),
            ("served_total driver", 1.0),
            ("rungs_total fail", 4.0),
            ("rungs_total trim", 9.0),
        ]);
        let now = values(&[
            ("served_total bucket", 16.0),
            ("served_total arena", 1.0),
            ("served_total driver", 4.0),
            ("rungs_total fail", 6.0),
            ("rungs_total trim", 3.0),
            ("failed_total limit", 0.0),
            ("limit_bytes", f64::INFINITY),
            ("live_bytes", 80.0),
            ("device_total_bytes", 100.0),
        ]);
        let row = Row::new((0, "x"), &key, &now, Some((&before, 2.0)));
        let expected = [
            ("bucket_hit_rate", 0.6),
            ("failed_requests", 0.0),
            ("hit_rate", 0.7),
            ("live_bytes", 80.0),
            ("live_of_limit", 0.8),
            ("requests_rate", 5.0),
            ("rungs_rate", 1.5),
        ];
        assert_eq!(row.figures.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(
            row.levels.into_iter().collect::<Vec<_>>(),
            [("hit_rate", Level::Yellow), ("live_of_limit", Level::Yellow)]
        );
        let first = Row::new((0, "x"), &key, &now, None);
        assert!(first.get("requests_rate").is_none() && first.get("live_bytes").is_some());
    }
}
