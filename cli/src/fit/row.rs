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
            padding: padding(&row),
        };
        demand.by_class(&SizeClasses::Table(classes.clone())).into_iter().map(of_one).collect()
    }
}

/// The share of padding in the bytes of all blocks of a class.
fn padding(row: &ClassDemand) -> Option<f64> {
    ratio(row.padding_bytes(), row.padding_bytes().saturating_add(row.requested_bytes))
}
