//! The flags for reading a trace, common to all commands that read traces, and the spinner meanwhile.

use crate::stdout::warn;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io;
use std::path::Path;
use std::time::Duration;
use vrampool_trace::output::shown;
use vrampool_trace::{Import, Trace, TraceError};

/// The name of standard input.
pub(crate) const STDIN: &str = "-";

/// How often the spinner turns.
const TICK: Duration = Duration::from_millis(100);

/// The spinner, in characters that every terminal has.
const TURNING: &str = "|/-\\ ";

/// Flags of every command that reads traces.
#[derive(Debug, Clone, Args)]
pub(crate) struct TraceOptions {
    /// The maximum number of events in a trace
    #[arg(long, value_name = "COUNT", default_value_t = Import::DEFAULT_EVENTS)]
    max_events: u32,
    /// Fail if a trace contradicts itself or may be truncated, instead of printing a warning
    #[arg(long)]
    strict: bool,
}

impl TraceOptions {
    /// Reads it, and prints its warnings on standard error.
    pub(crate) fn read(&self, path: &Path, import: Import) -> Result<Trace, TraceError> {
        let trace = read(path, import.max_events(self.max_events).strict(self.strict))?;
        warn_of(&trace, path);
        Ok(trace)
    }
}

/// Reads a trace from a file, or from standard input.
pub(crate) fn read(path: &Path, import: Import) -> Result<Trace, TraceError> {
    match path.as_os_str() == STDIN {
        true => Ok(import.parse(io::stdin().lock())?.named("stdin")),
        false => import.read(path),
    }
}

/// Prints the warnings of the trace of a file on standard error.
pub(crate) fn warn_of(trace: &Trace, path: &Path) {
    for warning in trace.warnings() {
        warn(format_args!("warning: {}: {warning}", shown(path)));
    }
}

/// A spinner, drawn only if standard error is a terminal.
pub(crate) fn spinner() -> ProgressBar {
    let spinner = styled(ProgressBar::new_spinner(), "{spinner} {msg}");
    spinner.enable_steady_tick(TICK);
    spinner
}

/// A progress bar of so many `things`, drawn only if standard error is a terminal.
#[must_use]
pub fn progress_bar(length: u64, things: &str) -> ProgressBar {
    let template = format!("{{spinner}} {{bar:30}} {{pos}}/{{len}} {things}, {{elapsed}}  {{msg}}");
    styled(ProgressBar::new(length), &template)
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.tick_chars(TURNING).progress_chars("##-")),
        Err(_) => bar,
    }
}
