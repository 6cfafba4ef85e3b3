//! The result of one case as a line of JSON.

use super::name::Name;
use crate::timing::clock::Figures;
use serde::Serialize;

/// One case of one benchmark with one allocator. The names and their order are those of the JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) bench: String,
    /// Sizes and counts.
    pub(crate) case: String,
    pub(crate) allocator: &'static str,
    pub(crate) threads: u32,
    pub(crate) ns_mean: f64,
    pub(crate) ns_median: f64,
    pub(crate) ns_min: f64,
    pub(crate) ns_max: f64,
}

impl Row {
    /// A row of one thread.
    pub(crate) fn new(bench: Name, case: String, allocator: &'static str, figures: Figures) -> Self {
        let Figures { mean, median, min, max } = figures;
        Self {
            bench: bench.to_string(),
            case,
            allocator,
            threads: 1,
            ns_mean: mean,
            ns_median: median,
            ns_min: min,
            ns_max: max,
        }
    }

    /// The same, of so many threads.
    pub(crate) fn threads(self, threads: u32) -> Self {
        Self { threads, ..self }
    }
}
