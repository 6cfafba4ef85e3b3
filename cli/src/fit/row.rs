//! Fitted classes as lines of JSON.

use crate::table::ratio;
use serde::Serialize;
use std::fmt;
use vrampool::{SizeClasses, SizeTable};
use vrampool_trace::Trace;
use vrampool_trace::fitted::{ClassDemand, Demand};

/// The whole. The names and their order are those of the JSON, here and below.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Summary {
    pub(crate) row: &'static str,
    pub(crate) trace: String,
    pub(crate) requests: u64,
    pub(crate) distinct_sizes: usize,
    pub(crate) learned_classes: usize,
    pub(crate) peak_requested: u64,
}

/// One class that the trace uses.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Class {
    pub(crate) row: &'static str,
    pub(crate) class: u64,
    pub(crate) learned: bool,
    pub(crate) sizes: u64,
    pub(crate) requests: u64,
    /// Of all requests.
    pub(crate) share: f64,
    pub(crate) peak_buffers: u64,
    pub(crate) held: Option<u64>,
    /// The share of padding in the bytes of its blocks; nothing when these are 0.
    pub(crate) padding: Option<f64>,
}

/// The memory that the trace would take with one rule.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Rule {
    pub(crate) row: &'static str,
    pub(crate) size_classes: String,
    /// The number of classes that the trace uses.
    pub(crate) classes: usize,
    pub(crate) padding_bytes: u64,
    pub(crate) padding: Option<f64>,
    pub(crate) held: Option<u64>,
    pub(crate) held_over_requested: Option<f64>,
}

impl Summary {
    pub(crate) fn new(trace: &Trace, demand: &Demand, classes: &SizeTable) -> Self {
        Self {
            row: "fit",
            trace: trace.name().into(),
            requests: demand.requests(),
            distinct_sizes: demand.distinct_sizes(),
            learned_classes: classes.sizes().len(),
            peak_requested: demand.peak_requested(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, requests, distinct_sizes, learned_classes, .. } = self;
        write!(
            f,
            "{trace}: {requests} requests of {distinct_sizes} sizes; {learned_classes} classes learned."
        )
    }
}

impl Class {
    pub(crate) fn of_all(demand: &Demand, classes: &SizeTable) -> Vec<Self> {
        let of_one = |row: ClassDemand| Self {
            row: "class",
            class: row.class,
            learned: classes.sizes().binary_search(&row.class).is_ok(),
            sizes: row.sizes,
            requests: row.requests,
            share: row.requests as f64 / demand.requests() as f64,
            peak_buffers: row.peak_buffers,
            held: row.held_bytes(),
            padding: padding(&[row]),
        };
        demand.by_class(&SizeClasses::Table(classes.clone())).into_iter().map(of_one).collect()
    }
}

impl Rule {
    pub(crate) fn new(demand: &Demand, rule: &SizeClasses) -> Self {
        let rows = demand.by_class(rule);
        let held = demand.held(rule);
        Self {
            row: "rule",
            size_classes: rule.to_string(),
            classes: rows.len(),
            padding_bytes: sum(&rows, ClassDemand::padding_bytes),
            padding: padding(&rows),
            held,
            held_over_requested: held.and_then(|held| ratio(held, demand.peak_requested())),
        }
    }
}

fn sum(rows: &[ClassDemand], bytes: fn(&ClassDemand) -> u64) -> u64 {
    rows.iter().map(bytes).fold(0, u64::saturating_add)
}

/// The share of padding in the bytes of all blocks of these classes.
fn padding(rows: &[ClassDemand]) -> Option<f64> {
    let padding = sum(rows, ClassDemand::padding_bytes);
    ratio(padding, padding.saturating_add(sum(rows, |row| row.requested_bytes)))
}
