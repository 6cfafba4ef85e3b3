//! A row of a table of metrics.

/// What a metric is to Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// Only ever grows.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// One exported metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name in Prometheus.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// Labels beyond `pool` or `broker`, `backend` and `device`.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// Makes a row of a table of metrics.
pub(super) const fn metric(
    name: &'static str,
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, labels, help }
}
