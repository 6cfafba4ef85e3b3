//! Fitted classes as lines of JSON and as a table.

use crate::table::{human, or_none, percent, ratio, table};
use serde::Serialize;
use vrampool::{SizeClasses, SizeTable};
use vrampool_trace::fitted::{ClassDemand, Demand};

/// One class that the trace uses. The names and their order are those of the JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Class {
    row: &'static str,
    class: u64,
    learned: bool,
    sizes: u64,
    requests: u64,
    /// Of all requests.
    share: f64,
    peak_buffers: u64,
    held: Option<u64>,
    /// The share of padding in the bytes of its blocks; nothing when these are 0.
    padding: Option<f64>,
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

/// One line a class, and whether it was learned.
pub(crate) fn table_of(classes: &[Class]) -> String {
    let columns = ["class", "", "sizes", "requests", "share", "live at once", "held", "padding"];
    let rows = classes.iter().map(|class| {
        [
            human(class.class),
            if class.learned { String::new() } else { "general".into() },
            class.sizes.to_string(),
            class.requests.to_string(),
            percent(class.share),
            class.peak_buffers.to_string(),
            or_none(class.held, human),
            or_none(class.padding, percent),
        ]
    });
    table(Some(columns), 1..2, rows)
}
