//! The trace that a command reads, and how.

use crate::trace_options::TraceOptions;
use clap::Args;
use indicatif::ProgressBar;
use std::error::Error;
use std::path::PathBuf;
use vrampool_trace::output::shown;
use vrampool_trace::{Format, Import, Trace};

/// The trace to read.
#[derive(Debug, Clone, Args)]
pub(crate) struct Input {
    /// CSV with the header op,id,size,stream,t_us, RMM's log, or PyTorch's memory snapshot; gzip-compressed
    /// or not, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The format of the trace: csv, rmm, pytorch [default: detected from the content]
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// The device of a snapshot to read [default: the first with a history]
    #[arg(long, value_name = "NUMBER")]
    device: Option<u32>,
    #[command(flatten)]
    options: TraceOptions,
}

impl Input {
    /// Reads it, with its name beside `spinner` meanwhile.
    pub(crate) fn read(&self, spinner: &ProgressBar) -> Result<Trace, Box<dyn Error>> {
        spinner.set_message(format!("reading {}", shown(&self.file)));
        let mut import = Import::new();
        if let Some(format) = self.from {
            import = import.format(format);
        }
        if let Some(device) = self.device {
            import = import.device(device);
        }
        let trace = self.options.read(&self.file, import);
        spinner.finish_and_clear();
        Ok(trace?)
    }
}
