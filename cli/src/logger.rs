//! The library's warnings on standard error.

use crate::stdout::warn;
use log::{LevelFilter, Log, Metadata, Record};

struct Stderr;

static STDERR: Stderr = Stderr;

/// From here on they are printed.
pub(crate) fn start() {
    if log::set_logger(&STDERR).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["vrampool::environment", "vrampool_trace::fitted", "vrampool_host"]
            .iter()
            .any(|part| metadata.target().starts_with(part))
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            warn(format_args!("warning: {}", record.args()));
        }
    }

    fn flush(&self) {}
}
