//! Fitted classes as lines of JSON.

use crate::table::ratio;
use serde::Serialize;
use vrampool::{SizeClasses, SizeTable};
use vrampool_trace::fitted::{ClassDemand, Demand};

/// One class that the trace uses. The names and their order are those of the JSON.
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
            padding: ratio(row.padding_bytes(), row.padding_bytes().saturating_add(row.requested_bytes)),
        };
        demand.by_class(&SizeClasses::Table(classes.clone())).into_iter().map(of_one).collect()
    }
}
