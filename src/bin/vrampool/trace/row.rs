//! What is in a trace, as lines of JSON.

use crate::stdout;
use serde::Serialize;
use std::error::Error;
use vrampool::trace::{SizeRange, Summary};

/// One line. The names and their order are those of what it is of.
#[derive(Debug, Clone, Serialize)]
struct Row<'a, T> {
    row: &'static str,
    #[serde(flatten)]
    of: &'a T,
}

/// Prints the whole, then each range of sizes.
pub(crate) fn print(summary: &Summary, sizes: &[SizeRange]) -> Result<(), Box<dyn Error>> {
    stdout::print(serde_json::to_string(&Row { row: "trace", of: summary })?)?;
    sizes.iter().try_for_each(|range| stdout::print(serde_json::to_string(&Row { row: "sizes", of: range })?))
}
