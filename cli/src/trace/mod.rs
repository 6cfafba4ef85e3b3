//! `vrampool trace`: shows traces, and converts them to other formats.

mod input;
mod plot;
mod table;

use crate::stdout::{print, print_json};
use crate::trace_options::spinner;
use clap::{Args, Subcommand};
use input::Input;
use serde::Serialize;
use std::error::Error;
use std::path::PathBuf;
use vrampool_trace::output::{Output, shown};
use vrampool_trace::{Export, Format, Losses};

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
    /// Draw a trace as one HTML file: bytes over time, blocks by address and time, and the blocks of each moment; or a
    /// single chart as SVG.
    Plot(Box<plot::Arguments>),
    /// Show the contents of a trace.
    Show(Show),
}

#[derive(Debug, Clone, Args)]
struct Convert {
    #[command(flatten)]
    input: Input,
    /// The file to write; gzip-compressed if its name ends with .gz
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,
    /// The format to write: csv, rmm, pytorch
    /// [default: pytorch if the name ends with .pickle or .pkl, else csv]
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
}

#[derive(Debug, Clone, Args)]
struct Show {
    #[command(flatten)]
    input: Input,
    /// Print one JSON object per line instead of tables: the trace, then each range of sizes
    #[arg(long)]
    json: bool,
}

/// A line of JSON with its kind.
#[derive(Debug, Serialize)]
struct Line<'a, T> {
    row: &'static str,
    #[serde(flatten)]
    of: &'a T,
}

/// Converts or shows a trace.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    match &arguments.command {
        Command::Convert(convert) => convert.run(),
        Command::Plot(plot) => plot::run(plot),
        Command::Show(show) => show.run(),
    }
}

impl Convert {
    fn run(&self) -> Result<(), Box<dyn Error>> {
        let output = Output::create(&self.output)?.distinct_from([&self.input.file])?;
        let trace = self.input.read()?;
        let spinner = spinner();
        spinner.set_message(format!("writing {}", shown(&self.output)));
        let format = self.to.unwrap_or_else(|| Format::of_name(&self.output));
        let losses = Export::new(format).convert(&trace, output);
        spinner.finish_and_clear();
        let losses = losses?;
        print(format_args!("{}: {} events as {format}", shown(&self.output), trace.events().len()))?;
        if losses == Losses::default() { Ok(()) } else { print(losses) }
    }
}

impl Show {
    fn run(&self) -> Result<(), Box<dyn Error>> {
        let trace = self.input.read()?;
        let (summary, sizes) = (trace.summary(), trace.size_ranges());
        if self.json {
            print_json(&Line { row: "trace", of: &summary })?;
            return sizes.iter().try_for_each(|of| print_json(&Line { row: "sizes", of }));
        }
        print(format_args!("{}\n\n{}", table::of_summary(&summary), table::of_sizes(&sizes)))
    }
}
