//! `vrampool train`: a network learns handwritten digits, and every matrix of every step comes from a pool.
//!
//! Weights, what the optimiser remembers, activations, gradients and batches are all pool buffers, allocated
//! where they are needed and dropped where they go out of scope. Two streams: one computes, and one copies
//! the next batch to the device meanwhile. The host enqueues work and waits once an epoch, for the numbers it
//! shows.
//!
//! From the bottom up: `matrix` (a buffer with a shape) · `compute` (kernels whose results come from the
//! pool) · `tally` · `layer` · `network` · `digits` · `loader` · `report`. The kernels of each backend are in
//! [`crate::kernels`]. The loop is [`train`]; it does not know which device it runs on.

mod compute;
mod digits;
mod layer;
mod loader;
mod matrix;
mod network;
mod report;
mod tally;

use crate::device::Device;
use crate::kernels::Kernels;
use clap::Args;
use compute::Compute;
use digits::{CLASSES, Digits, PIXELS};
use fastrand::Rng;
use loader::Loader;
use network::Network;
use report::Report;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Instant;
use tally::{Outcome, Tally};
use vrampool::telemetry::Exporter;
use vrampool::{Backend, Pool};
use vrampool_cli::interrupt::Interrupt;
use vrampool_cli::pool_options::{PoolOptions, build};
use vrampool_cli::record_options::{RecordOptions, Recording};
use vrampool_cli::stdout::{Ended, print};
use vrampool_cli::{on_device, progress_bar};
use vrampool_trace::Recorder;
use vrampool_trace::output::shown;

/// Widths of the hidden layers.
const HIDDEN: [usize; 2] = [256, 128];
/// Adam's rate at the first step; it falls to 0 in a straight line.
const RATE: f32 = 2e-3;

/// Flags of `vrampool train`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    /// Epochs: passes through the training images.
    #[arg(long, value_name = "COUNT", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Images per step; the last batch of an epoch may be smaller.
    #[arg(long, value_name = "IMAGES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,
    /// Seed of the random numbers; the same seed gives the same network.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Serve the pool's metrics to Prometheus at this address while training, for example 127.0.0.1:9184;
    /// port 0 selects a free port and prints it.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    record: RecordOptions,
    /// Print the result as one JSON object; sizes are bytes.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pool: PoolOptions,
}

/// Trains on the selected device, and prints the result.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    // Before the output is created: a process that sees the output may send a signal.
    let interrupt = arguments.record.path().map(|_| Interrupt::listen()).transpose()?;
    let recording = arguments.record.start(arguments.pool.inputs(), Recorder::DEFAULT_EVENTS)?;
    let (report, saved) = on_device!(arguments.pool.backend.as_ref(), |device| {
        train(arguments, recording, interrupt.as_ref(), &device, device.kernels()?)
    })?;
    print(if arguments.json { serde_json::to_string(&report)? } else { report.tables() })?;
    saved.map(drop)
}

/// The result, and how many events were recorded.
type Trained = (Report, Result<u64, Box<dyn Error>>);

fn train<B: Backend, K: Kernels<B>>(
    arguments: &Arguments,
    recording: Recording,
    interrupt: Option<&Interrupt>,
    device: &B,
    kernels: K,
) -> Result<Trained, Box<dyn Error>> {
    let pool = build(
        recording.apply(arguments.pool.apply(Pool::builder(device).from_environment()?.name("train"))),
    )?;
    let initial_bytes = pool.stats().reserved_bytes;
    let _exporter = arguments.metrics.map(|address| export(&pool, address)).transpose()?;
    let digits = Digits::load()?;
    let (mut learned, tested) = digits.split();
    let loader = Loader::new(&pool, digits)?;
    let compute = Compute::new(&pool, kernels)?;
    let mut rng = Rng::with_seed(arguments.seed);

    let start = Instant::now();
    let mut network = Network::new(&compute, PIXELS, &HIDDEN, CLASSES, &mut rng)?;
    let batch_size = arguments.batch_size as usize;
    let all_steps = u64::from(arguments.epochs) * learned.len().div_ceil(batch_size) as u64;
    let progress = progress_bar(all_steps, "steps");
    let (mut first_epoch, mut step_allocations, mut test) = (None, 0, Outcome::default());
    for epoch in 1..=arguments.epochs {
        rng.shuffle(&mut learned);
        let mut tally = Tally::new(&compute)?;
        let before = pool.stats().source.allocations;
        for batch in loader.batches(learned.chunks(batch_size)) {
            let rate = RATE * (1.0 - network.steps() as f64 / all_steps as f64) as f32;
            network.train(&compute, &batch?, rate, &mut tally)?;
            progress.inc(1);
            if let Some(exit_code) = interrupt.and_then(Interrupt::exit_code) {
                progress.finish_and_clear();
                return Err(interrupted(recording, arguments, network.steps(), exit_code));
            }
        }
        if epoch > 1 {
            step_allocations += pool.stats().source.allocations - before;
        }
        let training = tally.read(&compute)?;

        let mut tally = Tally::new(&compute)?;
        for batch in loader.batches(uneven(&tested, batch_size.saturating_mul(2), &mut rng)) {
            network.evaluate(&compute, &batch?, &mut tally)?;
        }
        test = tally.read(&compute)?;
        let (loss, accuracy) = (training.loss, 100.0 * test.accuracy);
        progress.set_message(format!("loss {loss:.4}, test accuracy {accuracy:.2} %"));
        if epoch == 1 && arguments.epochs > 1 {
            first_epoch = Some(pool.stats());
        }
    }
    progress.finish_and_clear();
    let elapsed = start.elapsed();
    // The report is printed even if this fails.
    let saved = recording.save();
    let report = Report::new(
        &pool,
        initial_bytes,
        first_epoch.as_ref(),
        step_allocations,
        network.steps(),
        test,
        elapsed,
    );
    Ok((report, saved))
}

/// Serves the pool's metrics as long as the exporter lives, and prints a port that was selected.
fn export<B: Backend>(pool: &Pool<B>, address: SocketAddr) -> Result<Exporter, Box<dyn Error>> {
    let exporter = Exporter::listen(address)?;
    exporter.add(pool)?;
    if address.port() == 0 {
        eprintln!("metrics at http://{}/metrics", exporter.address());
    }
    Ok(exporter)
}

/// Keeps what was recorded, and says so.
fn interrupted(recording: Recording, arguments: &Arguments, steps: u64, exit_code: u8) -> Box<dyn Error> {
    let path = arguments.record.path().map(shown).unwrap_or_default();
    match recording.save() {
        Ok(events) => {
            let text =
                format!("interrupted after {steps} steps; the {events} events recorded so far are in {path}");
            Ended { text, exit_code }.into()
        }
        Err(error) => error,
    }
}

/// Parts of `rows` of random sizes from 1 to `most`, as requests to a service come.
fn uneven<'a>(rows: &'a [usize], most: usize, rng: &mut Rng) -> impl Iterator<Item = &'a [usize]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let (part, after) = rest.split_at(rng.usize(1..=most).min(rest.len()));
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}
