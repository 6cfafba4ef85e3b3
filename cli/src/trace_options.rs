//! The flags for reading a trace, common to all commands that read traces.

use crate::stdout::warn;
use clap::Args;
use std::path::Path;
use vrampool::output::shown;
use vrampool::trace::{Import, Limits, Trace, TraceError};

/// Flags of every command that reads traces.
#[derive(Debug, Clone, Args)]
pub(crate) struct TraceOptions {
    /// The maximum number of events in a trace
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().max_events)]
    max_events: u32,
    /// Fail if a trace contradicts itself or may be truncated, instead of printing a warning
    #[arg(long)]
    strict: bool,
}

impl TraceOptions {
    /// Reads it, and prints its warnings on standard error.
    pub(crate) fn read(&self, path: &Path, import: Import) -> Result<Trace, TraceError> {
        let limits = Limits::default().max_events(self.max_events);
        let trace = import.limits(limits).strict(self.strict).read(path)?;
        for warning in trace.warnings() {
            warn(format_args!("warning: {}: {warning}", shown(path)));
        }
        Ok(trace)
    }
}
