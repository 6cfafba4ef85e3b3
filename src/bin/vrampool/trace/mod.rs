//! `vrampool trace`: traces looked at, and written in other formats.

mod row;
mod table;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;
use vrampool::trace::{Export, Format, Import, Limits, Trace};

/// How often the spinner turns.
const TICK: Duration = Duration::from_millis(100);

/// Flags of `vrampool trace`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Write a trace in another format.
    Convert(Convert),
    /// Show what is in a trace.
    Show(Show),
}

/// Where a trace comes from.
#[derive(Debug, Clone, Args)]
struct Input {
    /// CSV with the header op,id,size,stream,t_us, RMM's log, or PyTorch's memory snapshot; gzip-compressed or not
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Its format: csv, rmm, pytorch [default: told by its content]
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// Which device of a snapshot [default: the first that has a history]
    #[arg(long, value_name = "NUMBER")]
    device: Option<u32>,
    /// The most events that the trace may have
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().max_events)]
    max_events: u32,
}

#[derive(Debug, Clone, Args)]
struct Convert {
    #[command(flatten)]
    input: Input,
    /// The file to write; gzip-compressed where its name ends with .gz
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,
    /// Its format: csv, rmm, pytorch [default: pytorch where its name ends with .pickle, else csv]
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
}

#[derive(Debug, Clone, Args)]
struct Show {
    #[command(flatten)]
    input: Input,
    /// Print one JSON object a line instead of tables: the trace, then each range of sizes
    #[arg(long)]
    json: bool,
}

/// Converts or shows a trace.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    match &arguments.command {
        Command::Convert(convert) => convert.run(),
        Command::Show(show) => show.run(),
    }
}

impl Input {
    fn read(&self, spinner: &ProgressBar) -> Result<Trace, Box<dyn Error>> {
        spinner.set_message(format!("reading {}", self.file.display()));
        let mut import = Import::new().limits(Limits::default().max_events(self.max_events));
        if let Some(format) = self.from {
            import = import.format(format);
        }
        if let Some(device) = self.device {
            import = import.device(device);
        }
        Ok(import.read(&self.file)?)
    }
}

impl Convert {
    fn run(&self) -> Result<(), Box<dyn Error>> {
        let spinner = spinner();
        let trace = self.input.read(&spinner)?;
        spinner.set_message(format!("writing {}", self.output.display()));
        let format = self.to.unwrap_or_else(|| Format::of_name(&self.output));
        Export::new(format).save(&trace, &self.output)?;
        spinner.finish_and_clear();
        let (events, output) = (trace.events().len(), self.output.display());
        Ok(writeln!(io::stdout(), "{output}: {events} events as {format}")?)
    }
}

impl Show {
    fn run(&self) -> Result<(), Box<dyn Error>> {
        let spinner = spinner();
        let trace = self.input.read(&spinner)?;
        let (summary, sizes) = (trace.summary(), trace.size_ranges());
        spinner.finish_and_clear();
        if self.json {
            return Ok(row::print(&summary, &sizes)?);
        }
        let (whole, ranges) = (table::of_summary(&summary), table::of_sizes(&sizes));
        Ok(writeln!(io::stdout(), "{whole}\n{ranges}")?)
    }
}

/// Not drawn when standard error is no terminal.
fn spinner() -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    spinner.enable_steady_tick(TICK);
    match ProgressStyle::with_template("{spinner} {msg}") {
        Ok(style) => spinner.with_style(style),
        Err(_) => spinner,
    }
}
