//! `vrampool replay --compare`: a trace through a pool of every source and every rule of size classes.

mod choice;
mod report;

use super::arguments::Arguments;
use crate::device::Device;
use crate::interrupt::Interrupt;
use crate::pool_options::build;
use crate::stdout::{print, warn};
use crate::trace_options::progress_bar;
use choice::{Choice, Classes};
use indicatif::ProgressBar;
use report::{Report, Row};
use std::collections::HashSet;
use std::error::Error;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use vrampool::Pool;
use vrampool::errors::chain;
use vrampool_trace::fitted::{self, Demand};
use vrampool_trace::{Import, Op, Replay, Trace, TraceEvent};

/// How often the progress bar is drawn.
const TICK: Duration = Duration::from_millis(200);

/// Compares the choices for each trace.
pub(super) fn run<D: Device>(arguments: &Arguments, device: &D) -> Result<(), Box<dyn Error>> {
    let interrupt = Interrupt::listen()?;
    arguments.files.iter().try_for_each(|path| compare(arguments, device, path, &interrupt))
}

fn compare<D: Device>(
    arguments: &Arguments,
    device: &D,
    path: &Path,
    interrupt: &Interrupt,
) -> Result<(), Box<dyn Error>> {
    let bar = progress_bar(0, "choices");
    bar.enable_steady_tick(TICK);
    bar.set_message("reading");
    let trace = bar.suspend(|| arguments.trace.read(path, Import::new()))?;
    bar.set_message("fitting size classes");
    let (half, unseen) = first_half(&trace);
    let fit = |demand: &Demand| fitted::fit(demand, fitted::DEFAULT_CLASSES);
    let mut classes = Classes::rules(arguments.pool.size_classes());
    if arguments.pool.size_classes().is_none() {
        classes.push(Classes::fitted(fit(&trace.demand()), false));
        classes.extend((unseen > report::FEW).then(|| Classes::fitted(fit(&half), true)));
    }
    let choices = Choice::all(arguments.pool.source(), &classes);
    bar.set_length(choices.len() as u64);
    bar.set_message(trace.name().to_owned());
    let rows = replay(arguments, device, &trace, &choices, interrupt, &bar);
    bar.finish_and_clear();
    rows.iter().filter_map(|row| row.as_ref().err()).for_each(warn);
    let rows = rows.into_iter().flatten().collect();
    match Report::new(&trace, path, rows, unseen) {
        Some(report) => print(if arguments.json { report.json()? } else { report.to_string() })?,
        None if interrupt.exit_code().is_none() => {
            return Err(format!("{}: no source serves it with these flags", trace.name()).into());
        }
        None => {}
    }
    interrupt.end()
}

/// Returns the figures of each choice, or why it failed, until an interrupt. Replays are concurrent if each has a
/// separate device.
fn replay<D: Device>(
    arguments: &Arguments,
    device: &D,
    trace: &Trace,
    choices: &[Choice],
    interrupt: &Interrupt,
    bar: &ProgressBar,
) -> Vec<Result<Row, String>> {
    let replay = Replay::new(trace).passes(arguments.passes.get());
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while interrupt.exit_code().is_none()
            && let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some(choice) = choices.get(at)
        {
            let row = replay_one(arguments, device, &replay, choice, interrupt);
            bar.inc(1);
            let Some(row) = row.transpose() else { continue };
            let row = row.map_err(|error| format!("{choice}: {error}"));
            rows.lock().unwrap_or_else(PoisonError::into_inner).push((at, row));
        }
    };
    let devices_differ = device.with_memory(arguments.device_memory).id() != device.id();
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 1..if devices_differ { cores } else { 1 } {
            scope.spawn(work);
        }
        work();
    });
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Returns the figures of one choice; `None` if an interrupt ended the replay, and a text if it failed.
fn replay_one<D: Device>(
    arguments: &Arguments,
    device: &D,
    replay: &Replay,
    choice: &Choice,
    interrupt: &Interrupt,
) -> Result<Option<Row>, String> {
    let device = device.with_memory(arguments.device_memory);
    let builder = Pool::builder(&device).from_environment().map_err(|error| error.to_string())?;
    let pool = build(choice.apply(arguments.pool.apply(builder)))?;
    let mut passes = Vec::new();
    replay
        .run_with(&pool, |pass| {
            passes.push(pass.clone());
            interrupt.exit_code().map_or(ControlFlow::Continue(()), |_| ControlFlow::Break(()))
        })
        .map_err(|error| chain(&error).to_string())?;
    Ok(Row::new(choice, &passes).filter(|row| row.passes == arguments.passes.get()))
}
/// The requested sizes.
fn requests(events: &[TraceEvent]) -> impl Iterator<Item = u64> {
    events.iter().filter(|event| event.op == Op::Allocate).map(|event| event.size)
}

/// Returns the requests of the first half of the trace, and the share of the requests of the second half whose size
/// the first does not have.
fn first_half(trace: &Trace) -> (Demand, f64) {
    let (first, second) = trace.events().split_at(trace.events().len() / 2);
    let sizes: HashSet<_> = requests(first).collect();
    let unseen = requests(second).filter(|size| !sizes.contains(size)).count();
    (first.iter().collect(), unseen as f64 / requests(second).count().max(1) as f64)
}
