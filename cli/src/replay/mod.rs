//! `vrampool replay`: a pool driven by recorded allocation traces.

mod row;
mod table;

use crate::device::{self, Device};
use crate::pool_options::{PoolOptions, build, bytes_or_unlimited};
use crate::record_options::RecordOptions;
use crate::stdout::{print, warn};
use crate::trace_options::TraceOptions;
use clap::{Args, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use row::Row;
use std::error::Error;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use vrampool::{Backend, Pool};
use vrampool_trace::{Import, Op, Pass, Replay, Touch, Trace};

/// Flags of `vrampool replay`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    /// Traces: CSV with the header op,id,size,stream,t_us, RMM's logs, or PyTorch's memory snapshots;
    /// gzip-compressed or not
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    pool: PoolOptions,
    /// Threads that concurrently replay the whole of each trace, each on its own streams
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Passes of each trace on its pool; the first pass is cold, later ones are warm
    #[arg(long, value_name = "COUNT", default_value = "2")]
    passes: NonZeroU32,
    /// Write every buffer on its stream, and verify it on the stream that frees it; a mismatch is an error
    #[arg(long)]
    touch: bool,
    /// Capacity of the host device, or `unlimited`; without --touch it may exceed physical memory, because no
    /// buffer is written
    #[arg(long, value_name = "SIZE", default_value = "1TiB", value_parser = bytes_or_unlimited)]
    device_memory: u64,
    #[command(flatten)]
    trace: TraceOptions,
    #[command(flatten)]
    record: RecordOptions,
    /// Print one JSON object per line, for each pass, instead of a table; sizes are bytes
    #[arg(long)]
    json: bool,
}

/// Replays every file on a separate pool and prints the results of each pass.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.record.is_given() && arguments.files.len() > 1 {
        return Err(
            "a recording covers one trace; replay one file with --record, or several files without it".into(),
        );
    }
    arguments.record.check(arguments.inputs())?;
    device::run(arguments.pool.backend.as_ref(), Replays(arguments))
}

impl Arguments {
    /// All files that are read.
    fn inputs(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path).chain(self.pool.inputs())
    }
}

struct Replays<'a>(&'a Arguments);

impl device::Run for Replays<'_> {
    type Output = ();

    fn run<D: Device>(self, device: &D) -> Result<(), Box<dyn Error>> {
        let Self(arguments) = self;
        let touch = arguments.touch.then(|| device.touch()).transpose()?;
        let bar = progress_bar(arguments);
        let mut rows = Vec::new();
        let outcome = arguments.files.iter().try_for_each(|path| {
            let mut printed = Ok(());
            replay(
                arguments,
                &device.with_memory(arguments.device_memory),
                touch.as_ref(),
                path,
                &bar,
                |row| {
                    bar.inc(1);
                    match arguments.json {
                        true if printed.is_ok() => printed = bar.suspend(|| row.print()),
                        true => {}
                        false => rows.push(row),
                    }
                },
            )?;
            printed
        });
        bar.finish_and_clear();
        if !rows.is_empty() {
            print(table::of(&rows))?;
            warn_of_times();
        }
        outcome
    }
}

/// Warns that the times are those of a build without optimisations.
fn warn_of_times() {
    if cfg!(debug_assertions) {
        warn("ns/op is that of a build without optimisations; measure times with `cargo vrampool-all`");
    }
}

/// A progress bar, drawn between passes only, and only if standard error is a terminal.
fn progress_bar(arguments: &Arguments) -> ProgressBar {
    let passes = arguments.files.len() as u64 * u64::from(arguments.passes.get());
    let bar = ProgressBar::new(passes);
    match ProgressStyle::with_template("{bar:30} {pos}/{len} passes  {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn replay<B: Backend>(
    arguments: &Arguments,
    device: &B,
    touch: Option<&impl Touch<B>>,
    path: &Path,
    bar: &ProgressBar,
    mut on_row: impl FnMut(Row),
) -> Result<(), Box<dyn Error>> {
    let trace = bar.suspend(|| arguments.trace.read(path, Import::new()))?;
    bar.set_message(trace.name().to_owned());
    let recording = arguments.record.start(arguments.inputs(), recorded_events(arguments, &trace))?;
    let builder = arguments.pool.apply(Pool::builder(device).from_environment()?.name(trace.name()));
    let pool = build(recording.apply(builder))?;
    let initial_bytes = pool.stats().reserved_bytes;
    let replay = Replay::new(&trace).threads(arguments.threads).passes(arguments.passes.get());
    let mut corrupt = 0;
    let on_pass = |pass: &Pass| {
        corrupt += pass.corrupt_bytes.unwrap_or(0);
        on_row(Row::new(&trace, &pool, initial_bytes, pass));
    };
    match touch {
        Some(touch) => replay.run_touching(&pool, touch, on_pass)?,
        None => replay.run_with(&pool, on_pass)?,
    }
    recording.save()?;
    match corrupt {
        0 => Ok(()),
        _ => Err(format!("{}: {corrupt} bytes were not as they had been written", trace.name()).into()),
    }
}

/// An allocation and its free in each pass, by each thread, and what threads keep room for.
fn recorded_events(arguments: &Arguments, trace: &Trace) -> u64 {
    let allocations = trace.events().iter().filter(|event| event.op == Op::Allocate).count() as u64;
    (2 * allocations * u64::from(arguments.passes.get()) + 512) * u64::from(arguments.threads)
}
