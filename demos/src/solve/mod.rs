//! `vrampool solve`: a sweep through the parameters of an equation, larger than its share of the device.
//!
//! From the bottom up: `sweep` (the parameters, and the check of the results) · `report`, `plot`. The kernels
//! of each backend are in [`crate::kernels`].

mod plot;
mod report;
mod sweep;

use crate::device::Device;
use crate::kernels::{Kernels, Operation};
use clap::{Args, value_parser};
use report::{Comparison, Report};
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use sweep::Sweep;
use vrampool::any::Name;
use vrampool::{Backend, BackendError, Pool};
use vrampool_broker::{
    ArrayId, ArrayRequest, Broker, BrokerError, Client, ClientHandle, HostArray, HostBacking, RunReport,
    Share,
};
use vrampool_cli::interrupt::Interrupt;
use vrampool_cli::pool_options::bytes_or_unlimited;
use vrampool_cli::stdout::print;
use vrampool_cli::{on_device, progress_bar};
use vrampool_trace::output::Output;

/// The group that solves.
const GROUP: &str = "solver";
/// The part of the batch that is the share by default, and the least share.
const DEFAULT_PARTS: u64 = 8;
const LEAST_SHARE: u64 = 1 << 20;

/// Flags of `vrampool solve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    /// The device to run on, by a name that `devices` shows, or `auto` [default: VRAMPOOL_BACKEND, or host]
    #[arg(long, value_name = "DEVICE")]
    backend: Option<Name>,
    /// Oscillators to solve
    #[arg(long, value_name = "COUNT", default_value_t = 1 << 20, value_parser = value_parser!(u64).range(1..))]
    runs: u64,
    /// Samples of each solution that are kept
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = value_parser!(u64).range(1..))]
    samples: u64,
    /// Integration steps between two samples
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = value_parser!(u32).range(1..))]
    steps: u32,
    /// Streams that run chunks concurrently
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = value_parser!(u16).range(1..=64))]
    streams: u16,
    /// Maximum number of runs per chunk [default: as many as fit]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u64).range(1..))]
    chunk: Option<u64>,
    /// Device memory that the solver may hold, bytes
    /// [default: an eighth of the batch, plus one allocation granule of the device per stream]
    #[arg(long, value_name = "BYTES", value_parser = share_bytes)]
    share: Option<u64>,
    /// Write a timeline of copies and work on each stream to this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Also solve on one stream, and report the time that overlapping copies and work saves; with --chunk,
    /// both use chunks of that size
    #[arg(long)]
    compare: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Solves on the device that was asked for, and prints the result; after an interrupt that of the runs so far.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let interrupt = Interrupt::listen()?;
    let is_stopped = || interrupt.exit_code().is_some();
    let (report, drawn) = on_device!(arguments.backend.as_ref(), |device| {
        solve(arguments, &device, &device.kernels()?, &is_stopped)
    })?;
    if report.runs > 0 {
        print(if arguments.json { serde_json::to_string(&report)? } else { report.table() })?;
    }
    interrupt.end()?;
    drawn
}

/// Whether the rest of the work is skipped.
type IsStopped<'a> = &'a (dyn Fn() -> bool + Sync);

/// The result, and whether its picture was written.
type Solved = (Report, Result<(), Box<dyn Error>>);

/// A share that is one.
fn share_bytes(text: &str) -> Result<u64, String> {
    match bytes_or_unlimited(text)? {
        0 => Err("a share of 0 bytes is too small; use 1 byte or more".into()),
        bytes => Ok(bytes),
    }
}

fn solve<B: Backend>(
    arguments: &Arguments,
    device: &B,
    kernels: &impl Kernels<B>,
    is_stopped: IsStopped<'_>,
) -> Result<Solved, Box<dyn Error>> {
    // Before all of it is solved.
    let plot = arguments.plot.as_ref().map(Output::create).transpose()?;
    let sweep =
        Sweep { runs: arguments.runs, samples: arguments.samples, steps: arguments.steps, step: 0.01 };
    let (parameter_bytes, state_bytes) =
        sweep.bytes().ok_or("no memory has as many bytes: solve fewer runs")?;
    let broker = Broker::builder(&Pool::new(device)?).build()?;
    let client = register(&broker, arguments, parameter_bytes + state_bytes)?;
    if let Some(runs) = arguments.chunk {
        broker.set_chunk_runs(GROUP, runs)?;
    }
    let mut batch = Batch::new(&broker, &client, sweep, is_stopped)?;
    let streams = usize::from(arguments.streams);
    let singles = if arguments.compare { 3 } else { 0 };
    // The first touches every page for the first time.
    let runs = [(1, true), (1, true), (1, false)].into_iter().take(singles).chain([(streams, false)]);
    let mut done = Vec::new();
    for (streams, is_timed) in runs.chain(plot.is_some().then_some((streams, true))) {
        done.push(batch.run(kernels, streams, is_timed)?);
        if is_stopped() {
            break;
        }
    }
    let is_whole = |run: &RunReport| run.runs == sweep.runs;
    let comparison = match &done[..] {
        [_, timed, single, concurrent, ..] if singles > 0 && is_whole(concurrent) => {
            Some(Comparison::new(timed, single, concurrent))
        }
        _ => None,
    };
    // The report is printed even if this fails.
    let drawn = match (plot, done.get(singles + 1)) {
        (Some(output), Some(timed)) if is_whole(timed) => plot::write(timed, output),
        _ => Ok(()),
    };
    // Waiting for each stage takes time, which a comparison must not contain.
    let shown = match comparison {
        Some(_) => done.get(singles),
        None => done.iter().max_by_key(|run| run.runs),
    };
    Ok((batch.report(&client, shown.unwrap_or(&RunReport::default()), comparison)?, drawn))
}

/// Registers the sweep as a client with the requested share, or an eighth of the batch.
fn register<B: Backend>(
    broker: &Broker<B>,
    arguments: &Arguments,
    batch_bytes: u64,
) -> Result<ClientHandle<B>, Box<dyn Error>> {
    // Less than a granule of both arrays for each stream would be for fewer streams.
    let least = LEAST_SHARE.max(2 * u64::from(arguments.streams) * broker.granularity());
    let share = arguments.share.unwrap_or((batch_bytes / DEFAULT_PARTS).max(least));
    let device = broker.device();
    let total = device.memory_info().map_or(device.properties().total_bytes, |info| info.total_bytes);
    Ok(broker.register(Client::new("sweep").group(GROUP).share(Share::Bytes(share.min(total))))?)
}

/// The arrays of a sweep, on the host and as they are asked for on the device.
struct Batch<'a, B: Backend> {
    broker: &'a Broker<B>,
    sweep: Sweep,
    parameters: HostArray<B>,
    states: HostArray<B>,
    parameters_id: ArrayId,
    states_id: ArrayId,
    is_stopped: IsStopped<'a>,
}

impl<'a, B: Backend> Batch<'a, B> {
    fn new(
        broker: &'a Broker<B>,
        client: &ClientHandle<B>,
        sweep: Sweep,
        is_stopped: IsStopped<'a>,
    ) -> Result<Self, Box<dyn Error>> {
        let (parameter_bytes, state_bytes) = sweep.bytes().unwrap_or_default();
        let mut parameters = broker.host_array(parameter_bytes)?;
        let states = broker.host_array(state_bytes)?;
        sweep.fill(&mut parameters)?;
        let request = ArrayRequest::input("parameters", [3, sweep.runs], 4).chunk_axis(1);
        let parameters_id = client.queue(request)?;
        let request = ArrayRequest::output("states", [sweep.samples, sweep.runs], 4).chunk_axis(1);
        let states_id = client.queue(request)?;
        Ok(Self { broker, sweep, parameters, states, parameters_id, states_id, is_stopped })
    }

    /// Solves all of it, on so many streams; once it is stopped, only the chunks that have begun.
    fn run(
        &mut self,
        kernels: &impl Kernels<B>,
        streams: usize,
        is_timed: bool,
    ) -> Result<RunReport, Box<dyn Error>> {
        self.broker.set_streams(GROUP, streams)?;
        let plan = self.broker.commit(GROUP)?;
        let bar = progress_bar(self.sweep.runs, "runs");
        let (parameters, states, sweep) = (self.parameters_id, self.states_id, self.sweep);
        let execution = plan
            .execution()
            .upload(parameters, &self.parameters)
            .download(states, &mut self.states)
            .on_progress(|progress| {
                bar.set_position(progress.runs_done);
                bar.set_message(format!("chunks of {}", progress.chunk_len));
            });
        let execution = if is_timed { execution.timed() } else { execution };
        let (is_stopped, was_stopped, began) = (self.is_stopped, AtomicBool::new(false), Instant::now());
        let report = execution.run(|chunk, stream| {
            if is_stopped() {
                was_stopped.store(true, Ordering::Relaxed);
                return Err(BackendError::unsupported("solving after an interrupt").into());
            }
            let (from, to) = (chunk.region(parameters)?, chunk.region_mut(states)?);
            Ok(kernels.enqueue(stream, Operation::Solve(from, sweep.step, sweep.steps, to))?)
        });
        bar.finish_and_clear();
        match report {
            // Those before it are complete.
            Err(BrokerError::Run { chunk, range, .. }) if was_stopped.into_inner() => {
                let mut report = RunReport::default();
                (report.chunks, report.runs, report.chunk_len) =
                    (chunk, range.start, range.end - range.start);
                (report.streams, report.elapsed) = (streams, began.elapsed());
                let (parameter_bytes, state_bytes) = sweep.bytes().unwrap_or_default();
                report.copied_bytes = (parameter_bytes + state_bytes) / sweep.runs.max(1) * range.start;
                Ok(report)
            }
            report => Ok(report?),
        }
    }

    /// The report of a run.
    fn report(
        &self,
        client: &ClientHandle<B>,
        run: &RunReport,
        comparison: Option<Comparison>,
    ) -> Result<Report, Box<dyn Error>> {
        let Self { broker, sweep, .. } = self;
        let (properties, stats) = (broker.device().properties(), client.stats());
        let (parameter_bytes, state_bytes) = sweep.bytes().unwrap_or_default();
        let seconds = run.elapsed.as_secs_f64();
        Ok(Report {
            backend: properties.backend,
            device: properties.name.clone(),
            runs: run.runs,
            unsolved: sweep.runs - run.runs,
            samples: sweep.samples,
            steps: sweep.steps,
            batch_bytes: parameter_bytes + state_bytes,
            share_bytes: stats.cap_bytes,
            peak_held: stats.peak_held_bytes,
            host_arrays: match self.states.backing() {
                HostBacking::Pinned => "pinned",
                HostBacking::File => "file",
                _ => "pageable",
            },
            streams: run.streams,
            chunks: run.chunks,
            chunk_len: run.chunk_len,
            shrinks: run.shrinks,
            bytes_copied: run.copied_bytes,
            peak_staging: broker.stats().peak_staging_bytes,
            seconds,
            runs_per_second: run.runs as f64 / seconds,
            worst_error: sweep.worst_error(&self.states, run.runs)?,
            comparison,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;
    use std::sync::atomic::{AtomicU64, Ordering};
    use vrampool::host::HostDevice;

    #[test]
    fn a_sweep_that_is_stopped_reports_the_chunks_before() {
        for flags in [&["--streams", "1"][..], &["--streams", "3"], &["--compare"]] {
            let command = Arguments::augment_args(clap::Command::new("solve"));
            let sizes = ["solve", "--runs", "1000", "--chunk", "100", "--steps", "2"];
            let matches = command.get_matches_from(sizes.iter().chain(flags));
            let arguments = Arguments::from_arg_matches(&matches).expect("flags");
            let (device, asked) = (HostDevice::new(), AtomicU64::new(0));
            let is_stopped = || asked.fetch_add(1, Ordering::Relaxed) > 5;
            let kernels = device.kernels().expect("kernels");
            let (report, drawn) = solve(&arguments, &device, &kernels, &is_stopped).expect("a part");
            drawn.expect("no picture");
            assert_eq!(
                (report.runs, report.unsolved),
                (100 * report.chunks, 1000 - report.runs),
                "{flags:?}"
            );
            // Of several streams, one may be stopped before another one has asked for an earlier chunk.
            let is_in_order = flags != ["--streams", "3"];
            assert!(report.runs == 600 || !is_in_order && report.runs < 600, "{flags:?}: {}", report.runs);
            assert!(report.comparison.is_none() && report.table().contains("interrupted before"));
        }
    }
}
