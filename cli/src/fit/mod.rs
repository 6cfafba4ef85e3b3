//! `vrampool fit`: size classes learned from a recorded trace.

mod row;

use crate::stdout::{print, print_json};
use crate::trace_options::{TraceOptions, spinner};
use clap::{Args, value_parser};
use row::Class;
use serde_json::json;
use std::error::Error;
use std::path::PathBuf;
use vrampool_trace::Import;
use vrampool_trace::fitted;
use vrampool_trace::output::{Output, shown};

/// Explanation of the figures, for the help.
const FIGURES: &str = "\
The fitted classes minimize the bytes that a pool without caps holds after serving the trace.

The table lists each class that the trace uses, with its requests and the peak of live buffers. Classes \
marked general are not fitted: they are 8 classes per power of two (multiples of 512 bytes below 4 KiB), which \
serve all other sizes. Held is the memory that a pool without caps and without borrowing holds at the end of the \
trace. Padding is the share of a block that rounding up added. `replay --compare` compares the fit with other rules.";

/// Flags of `vrampool fit`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = FIGURES)]
pub(crate) struct Arguments {
    /// A trace: CSV with the header op,id,size,stream,t_us, RMM's log, or PyTorch's memory snapshot;
    /// gzip-compressed or not, or `-` for standard input
    #[arg(value_name = "TRACE")]
    file: PathBuf,
    /// The maximum number of classes to fit
    #[arg(
        long, value_name = "COUNT", default_value_t = fitted::DEFAULT_CLASSES as u64,
        value_parser = value_parser!(u64).range(..=fitted::MAX_CLASSES as u64)
    )]
    classes: u64,
    /// Write the classes to this file, for `--size-classes fitted:FILE`
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    trace: TraceOptions,
    /// Print one JSON object per line instead of a table: the fit, then each class
    #[arg(long)]
    json: bool,
}

/// Fits classes to the trace, writes them, and prints a summary.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let output = arguments.output.as_ref().map(Output::create).transpose()?;
    let output = output.map(|output| output.distinct_from([&arguments.file])).transpose()?;
    let spinner = spinner();
    spinner.set_message(format!("reading {}", shown(&arguments.file)));
    let trace = spinner.suspend(|| arguments.trace.read(&arguments.file, Import::new()))?;
    spinner.set_message(format!("fitting {} events", trace.events().len()));
    let demand = trace.demand();
    let classes = fitted::fit(&demand, arguments.classes as usize);
    // The report is printed even if this fails.
    let saved = output.map_or(Ok(()), |output| output.save(fitted::text(&classes)));
    let used = Class::of_all(&demand, &classes);
    let (name, requests, sizes) = (trace.name(), demand.requests(), demand.distinct_sizes());
    let learned = classes.sizes().len();
    spinner.finish_and_clear();

    if arguments.json {
        print_json(&json!({
            "row": "fit",
            "trace": name,
            "requests": requests,
            "distinct_sizes": sizes,
            "learned_classes": learned,
            "peak_requested": demand.peak_requested(),
        }))?;
        used.iter().try_for_each(print_json)?;
        return Ok(saved?);
    }
    let used = row::table_of(&used);
    print(format_args!(
        "{used}\n\n{name}: {requests} requests of {sizes} sizes; {learned} classes learned."
    ))?;
    saved?;
    match &arguments.output {
        Some(path) => print(format_args!("Use them: --size-classes fitted:{}", shown(path))),
        None => Ok(()),
    }
}
