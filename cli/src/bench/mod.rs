//! `vrampool bench`: what a pair of allocate and free costs, cuArena's benchmarks among others.

mod allocator;
mod clock;
mod compaction;
mod hits;
mod misses;
mod name;
mod pair;
mod plot;
mod population;
mod regions;
mod rivals;
mod row;
mod sleep;
mod table;
mod workload;

use crate::device::{self, Device};
use crate::stdout::print;
use clap::{Args, ValueEnum};
use clock::Effort;
use indicatif::{ProgressBar, ProgressStyle};
use name::Name;
pub(crate) use rivals::Rivals;
use row::Row;
use std::error::Error;
use std::path::PathBuf;
use vrampool::any;
use vrampool::output::Output;

/// What the figures are, for the help.
const FIGURES: &str = "\
Figures are nanoseconds for one pair of allocate and free: of 500 samples after 50 to warm up, the mean, the (upper) median,
the least and the most. A sample is many pairs where one is too short for the clock: 64 in cuarena_1, 3 and 6 and pair,
4096 in arena_lifo, arena_random, hit_pair and miss_pair (there 64 by the driver), the 512 and 8 pairs of a round in
cuarena_2 and 4, 32 handed over. In cuarena_5 it is one compaction with the wait for its copies (or, by the driver, these
copies alone), and one allocation.

Allocators: driver, the device's own allocate and free; arena, a range of 4 GiB on the device, in arena_lifo and
arena_random the numbers alone; device_arena, there, one on the device; pool, with caps that keep all that is freed, but
in miss_pair nothing, with an arena behind it; in pair, hit, such a pool, and miss, one over an arena that keeps nothing.
In sleep a growing arena of blocks of 256 MiB sleeps and wakes, by pinned host memory and without its contents: bytes that the
device says to have more, seconds, rates over the bytes that were copied, beside those of plain pinned copies, and bytes that
came back wrong. It has lines of its own.
On NVIDIA GPUs also: async, cudaMallocAsync of a pool that keeps what is freed; async_default, of one with the driver's
own threshold; managed, of at most 64 MiB in all.";

/// Flags of `vrampool bench`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = FIGURES)]
pub(crate) struct Arguments {
    /// The device to run on, by a name that `devices` shows, or `auto` [default: VRAMPOOL_BACKEND, or host]
    #[arg(long, value_name = "DEVICE")]
    backend: Option<any::Name>,
    /// Which benchmarks to run, repeated or separated by commas [default: all but sleep]
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Name>,
    /// Print one JSON object a line, one line a case and allocator, instead of a table
    #[arg(long)]
    json: bool,
    /// Also draw throughput over threads, as hit_pair measures it, to this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// How much memory sleeps and wakes in sleep, GiB
    /// [default: 1 on a device that shares the host's memory; else half of what is free, at most 32]
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    sleep_gib: Option<u64>,
    /// Too few samples to mean anything, to try the command out
    #[arg(long, hide = true)]
    quick: bool,
}

/// A benchmark that could not be run.
#[derive(Debug, thiserror::Error)]
#[error("{bench}: {source}")]
struct Failed {
    bench: String,
    source: vrampool::Error,
}

/// Memory of the host device. Little of it is touched, so it may be more than there is.
const DEVICE_MEMORY: u64 = 1 << 40;

/// Runs the benchmarks and prints what they measured.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    device::run(arguments.backend.as_ref(), Benchmarks(arguments))
}

struct Benchmarks<'a>(&'a Arguments);

impl device::Run for Benchmarks<'_> {
    type Output = ();

    fn run<D: Device>(self, device: &D) -> Result<(), Box<dyn Error>> {
        measure(self.0, device)
    }
}

fn measure<D: Device>(arguments: &Arguments, device: &D) -> Result<(), Box<dyn Error>> {
    let plot = arguments.plot.as_ref().map(Output::create).transpose()?;
    let wanted = |name: &&Name| match arguments.only.is_empty() {
        true => **name != Name::Sleep,
        false => arguments.only.contains(name),
    };
    let names: Vec<Name> = Name::value_variants().iter().filter(wanted).copied().collect();
    let effort = if arguments.quick { Effort::QUICK } else { Effort::FULL };
    let bar = progress_bar(names.len());
    let mut rows = Vec::new();
    let outcome: Result<(), Box<dyn Error>> = names.into_iter().try_for_each(|name| {
        bar.set_message(name.to_string());
        if name == Name::Sleep {
            return bar.suspend(|| measure_sleep(arguments, device));
        }
        let measured = name.measure(&device.with_memory(DEVICE_MEMORY), effort);
        let measured = measured.map_err(|source| Failed { bench: name.to_string(), source })?;
        bar.inc(1);
        if arguments.json {
            bar.suspend(|| measured.iter().try_for_each(Row::print))?;
        }
        rows.extend(measured);
        Ok(())
    });
    bar.finish_and_clear();
    if !arguments.json && !rows.is_empty() {
        print(table::of(&rows))?;
    }
    outcome?;
    plot.map_or(Ok(()), |output| plot::write(&rows, output))
}

fn measure_sleep<D: Device>(arguments: &Arguments, device: &D) -> Result<(), Box<dyn Error>> {
    let device = device.with_memory(DEVICE_MEMORY);
    let failed = |source| Failed { bench: Name::Sleep.to_string(), source };
    let rows =
        sleep::measure(&device, &device.touch()?, arguments.sleep_gib, arguments.quick).map_err(failed)?;
    if arguments.json {
        return rows.iter().try_for_each(sleep::Row::print);
    }
    print(sleep::table(&rows))
}

/// Drawn between benchmarks only, and not at all when standard error is no terminal.
fn progress_bar(benchmarks: usize) -> ProgressBar {
    let bar = ProgressBar::new(benchmarks as u64);
    match ProgressStyle::with_template("{bar:30} {pos}/{len} benchmarks  {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
