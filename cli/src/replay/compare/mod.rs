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

/// A choice, and its figures or why it failed.
type Outcome = (Choice, Result<Row, String>);

/// Compares the choices for each trace.
pub(super) struct Compare<'a>(pub(super) &'a Arguments);

impl Compare<'_> {
    pub(super) fn run<D: Device>(&self, device: &D) -> Result<(), Box<dyn Error>> {
        let interrupt = Interrupt::listen()?;
        self.0.files.iter().try_for_each(|path| self.compare(device, path, &interrupt))
    }

    fn compare<D: Device>(
        &self,
        device: &D,
        path: &Path,
        interrupt: &Interrupt,
    ) -> Result<(), Box<dyn Error>> {
        let bar = progress_bar(0, "choices");
        bar.enable_steady_tick(TICK);
        bar.set_message("reading");
        let trace = bar.suspend(|| self.0.trace.read(path, Import::new()))?;
        bar.set_message("fitting size classes");
        let (half, unseen) = first_half(&trace);
        let fit = |demand: &Demand| fitted::fit(demand, fitted::DEFAULT_CLASSES);
        let mut classes = Classes::rules(self.0.pool.size_classes());
        if self.0.pool.size_classes().is_none() {
            classes.push(Classes::fitted(fit(&trace.demand()), false));
            classes.extend((unseen > report::FEW).then(|| Classes::fitted(fit(&half), true)));
        }
        let choices = Choice::all(self.0.pool.source(), &classes);
        bar.set_length(choices.len() as u64);
        bar.set_message(trace.name().to_owned());
        let rows = self.replay(device, &trace, &choices, interrupt, &bar);
        bar.finish_and_clear();
        for (choice, error) in rows.iter().filter_map(|(choice, row)| Some((choice, row.as_ref().err()?))) {
            warn(format_args!("{choice}: {error}"));
        }
        let rows = rows.into_iter().filter_map(|(_, row)| row.ok()).collect();
        match Report::new(&trace, path, rows, unseen) {
            Some(report) => print(if self.0.json { report.json()? } else { report.to_string() })?,
            None if interrupt.exit_code().is_none() => {
                return Err(format!("{}: no source serves it with these flags", trace.name()).into());
            }
            None => {}
        }
        interrupt.end()
    }

    /// Replays the trace by each choice, until an interrupt. Replays are concurrent if each has a separate device.
    fn replay<D: Device>(
        &self,
        device: &D,
        trace: &Trace,
        choices: &[Choice],
        interrupt: &Interrupt,
        bar: &ProgressBar,
    ) -> Vec<Outcome> {
        let replay = Replay::new(trace).passes(self.0.passes.get());
        let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while interrupt.exit_code().is_none()
                && let at = next.fetch_add(1, Ordering::Relaxed)
                && let Some(choice) = choices.get(at)
            {
                let row = self.replay_one(device, &replay, choice, interrupt);
                bar.inc(1);
                let Some(row) = row.transpose() else { continue };
                rows.lock().unwrap_or_else(PoisonError::into_inner).push((at, (choice.clone(), row)));
            }
        };
        let devices_differ = device.with_memory(self.0.device_memory).id() != device.id();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 1..if devices_differ { cores } else { 1 } {
                scope.spawn(work);
            }
            work();
        });
        let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
        rows.sort_by_key(|(at, _)| *at);
        rows.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Returns the figures of one choice; `None` if an interrupt ended the replay, and a text if it failed.
    fn replay_one<D: Device>(
        &self,
        device: &D,
        replay: &Replay,
        choice: &Choice,
        interrupt: &Interrupt,
    ) -> Result<Option<Row>, String> {
        let device = device.with_memory(self.0.device_memory);
        let builder = Pool::builder(&device).from_environment().map_err(|error| error.to_string())?;
        let pool = build(choice.apply(self.0.pool.apply(builder)))?;
        let mut passes = Vec::new();
        replay
            .run_with(&pool, |pass| {
                passes.push(pass.clone());
                interrupt.exit_code().map_or(ControlFlow::Continue(()), |_| ControlFlow::Break(()))
            })
            .map_err(|error| chain(&error).to_string())?;
        Ok(Row::new(choice, &passes).filter(|row| row.passes == self.0.passes.get()))
    }
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
