//! The result of one case as a line of JSON, and results as a table.

use super::name::Name;
use crate::table::table;
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
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

impl Row {
    /// A row of one thread.
    pub(crate) fn new(
        bench: Name,
        case: impl Into<String>,
        allocator: &'static str,
        figures: Figures,
    ) -> Self {
        Self { bench: bench.to_string(), case: case.into(), allocator, threads: 1, figures }
    }
}

const COLUMNS: [&str; 6] = ["benchmark", "case", "allocator", "threads", "ns median", "ns min"];

/// One line a row.
pub(crate) fn table_of(rows: &[Row]) -> String {
    let rows = rows.iter().map(|row| {
        let [median, min] = [row.figures.ns_median, row.figures.ns_min].map(|figure| format!("{figure:.1}"));
        let [case, threads] = [row.case.clone(), row.threads.to_string()];
        [row.bench.clone(), case, row.allocator.into(), threads, median, min]
    });
    table(Some(COLUMNS), 0..3, rows)
}
