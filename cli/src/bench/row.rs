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
