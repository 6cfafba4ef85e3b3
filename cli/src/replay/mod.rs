//! `vrampool replay`: a pool driven by recorded allocation traces.

mod arguments;
mod compare;
mod row;

use crate::device::{Device, on_device};
use crate::interrupt::Interrupt;
use crate::pool_options::build;
use crate::stdout::{print, print_json, warn};
use crate::trace_options::progress_bar;
pub(crate) use arguments::Arguments;
use indicatif::ProgressBar;
use row::Row;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use vrampool::{Backend, Pool};
use vrampool_trace::{Import, Op, Pass, Replay, Touch, Trace};

/// Replays every file on a separate pool and prints the results of each pass.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.record.path().is_some() && arguments.files.len() > 1 {
        return Err(
            "a recording covers one trace; replay one file with --record, or several files without it".into(),
        );
    }
    // An output that cannot be created is reported before the work.
    arguments.record.start(arguments.inputs(), 0)?;
    if arguments.compare {
        return on_device!(arguments.pool.backend.as_ref(), |device| compare::run(arguments, &device));
    }
    on_device!(arguments.pool.backend.as_ref(), |device| replay_all(arguments, &device))
}

fn replay_all<D: Device>(arguments: &Arguments, device: &D) -> Result<(), Box<dyn Error>> {
    let touch = arguments.touch.then(|| device.touch()).transpose()?;
    let interrupt = Interrupt::listen()?;
    let bar = progress_bar(arguments.files.len() as u64 * u64::from(arguments.passes.get()), "passes");
    let mut rows = Vec::new();
    let outcome = arguments.files.iter().try_for_each(|path| {
        let mut printed = Ok(());
        let device = device.with_memory(arguments.device_memory);
        replay(arguments, &device, touch.as_ref(), path, &bar, |row| {
            bar.inc(1);
            match arguments.json {
                true => printed = bar.suspend(|| print_json(&row)),
                false => rows.push(row),
            }
            match printed.is_err() || interrupt.exit_code().is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        printed?;
        interrupt.end()
    });
    bar.finish_and_clear();
    if !rows.is_empty() {
        print(row::table_of(&rows))?;
        warn_of_times();
    }
    outcome
}

/// Warns that the times are those of a build without optimisations.
fn warn_of_times() {
    if cfg!(debug_assertions) {
        warn("ns/op is that of a build without optimisations; measure times with `cargo vrampool-all`");
    }
}

fn replay<B: Backend>(
    arguments: &Arguments,
    device: &B,
    touch: Option<&impl Touch<B>>,
    path: &Path,
    bar: &ProgressBar,
    mut on_row: impl FnMut(Row) -> ControlFlow<()>,
) -> Result<(), Box<dyn Error>> {
    let trace = bar.suspend(|| arguments.trace.read(path, Import::new()))?;
    bar.set_message(trace.name().to_owned());
    let recording = arguments.record.start(arguments.inputs(), recorded_events(arguments, &trace))?;
    let builder = arguments.pool.apply(Pool::builder(device).from_environment()?.name(trace.name()));
    let pool = build(recording.apply(builder))?;
    let initial_bytes = pool.stats().reserved_bytes;
    let replay = Replay::new(&trace).passes(arguments.passes.get());
    let mut corrupt = 0;
    let on_pass = |pass: &Pass| {
        corrupt += pass.corrupt_bytes.unwrap_or(0);
        on_row(Row::new(&trace, &pool, initial_bytes, pass))
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

/// An allocation and its free in each pass, and what the thread keeps room for.
fn recorded_events(arguments: &Arguments, trace: &Trace) -> u64 {
    let allocations = trace.events().iter().filter(|event| event.op == Op::Allocate).count() as u64;
    2 * allocations * u64::from(arguments.passes.get()) + 512
}
