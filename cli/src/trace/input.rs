//! The trace that a command reads, and how.

use crate::trace_options::{STDIN, TraceOptions, spinner};
use clap::Args;
use std::fs::File;
use std::io::{self, BufRead};
use std::path::PathBuf;
use vrampool_trace::output::shown;
use vrampool_trace::{Format, Import, Trace, TraceError};

/// The trace to read.
#[derive(Debug, Clone, Args)]
pub(crate) struct Input {
    /// CSV with the header op,id,size,stream,t_us, RMM's log, or PyTorch's memory snapshot; gzip-compressed
    /// or not, or `-` for standard input. `plot` also draws the snapshot of a pool, as JSON
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
    /// The file, if it is JSON, as pools write snapshots; none is a trace.
    pub(super) fn snapshot(&self) -> Option<Box<dyn BufRead>> {
        let mut input: Box<dyn BufRead> = match (self.file.as_os_str() == STDIN, File::open(&self.file)) {
            (true, _) => Box::new(io::stdin().lock()),
            (_, Ok(file)) => Box::new(io::BufReader::new(file)),
            // The reader of traces names it.
            (_, Err(_)) => return None,
        };
        let is_json = input.fill_buf().is_ok_and(|bytes| bytes.first() == Some(&b'{'));
        is_json.then_some(input)
    }

    /// Reads it, with its name beside a spinner meanwhile.
    pub(crate) fn read(&self) -> Result<Trace, TraceError> {
        let spinner = spinner();
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
        trace
    }
}
