//! `vrampool bench`: the time of a pair of allocate and free, including the benchmarks of cuArena.

mod compaction;
mod hits;
mod name;
mod pairs;
mod regions;
mod row;
mod sleep;

use crate::completed::device;
use crate::device::{Device, on_device};
use crate::interrupt::Interrupt;
use crate::stdout::{print, print_json, warn};
use crate::timing::Rivals;
use crate::timing::clock::Effort;
use crate::timing::workload::Workload;
use crate::trace_options::progress_bar;
use clap::{Args, ValueEnum};
use name::Name;
use row::Row;
use std::error::Error;
use vrampool::any;

/// Explanation of the figures, for the help.
const FIGURES: &str = "\
Figures are nanoseconds for one pair of allocate and free. Of 500 samples after 50 warm-up samples, the table \
has the (upper) median and the minimum; with --json also the mean and the maximum. If one pair is too short for the clock, a \
sample is many pairs:
- 64 in cuarena_1, cuarena_3, cuarena_6 and pair
- 4096 in hit_pair
- the 512 and 8 pairs of a round in cuarena_2 and cuarena_4
- 32 where another thread frees
In cuarena_5, a sample is one compaction, including the wait for its copies (for the driver, the copies \
alone), and one allocation.

Allocators:
- driver: the device's own allocate and free
- arena: a range of 4 GiB on the device
- pool, and hit in pair: a pool whose caps keep everything that is freed
- miss, in pair: a pool without a cache over an arena
On NVIDIA GPUs also:
- async: cudaMallocAsync with a pool that keeps what is freed
- async_default: the same with the driver's own threshold
- managed: managed memory, at most 64 MiB in all

In sleep, a growing arena with blocks of 256 MiB sleeps and wakes, with its contents in pinned host memory and \
without its contents. Its lines report the free memory gained on the device, seconds, the rate of copied \
bytes, the rate of plain pinned copies, and the number of wrong bytes after waking.";

/// Flags of `vrampool bench`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = FIGURES)]
pub(crate) struct Arguments {
    /// The device to run on, by a name that `devices` shows, or `auto` [default: VRAMPOOL_BACKEND, or host]
    #[arg(long, value_name = "DEVICE", value_parser = device())]
    #[arg(hide_possible_values = true)]
    backend: Option<any::Name>,
    /// Benchmarks to run, repeated or separated by commas [default: all except sleep]
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Name>,
    /// Print one JSON object per line, for each case and allocator, instead of a table
    #[arg(long)]
    json: bool,
    /// Memory for the sleep benchmark, GiB
    /// [default: 1 on a device that shares the host's memory; else half of the free memory, at most 32]
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    sleep_gib: Option<u64>,
    /// Take few samples, to test the command; the figures are not meaningful
    #[arg(long, hide = true)]
    quick: bool,
}

/// The failure of a benchmark.
#[derive(Debug, thiserror::Error)]
#[error("{bench} failed")]
struct Failed {
    bench: String,
    source: Box<dyn Error>,
}

/// Capacity of the host device. Little of it is used, so it may exceed physical memory.
const DEVICE_MEMORY: u64 = 1 << 40;

/// Runs the benchmarks and prints their results.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if cfg!(debug_assertions) && !arguments.quick {
        warn(format_args!("warning: this build is not optimised; measure with `cargo vrampool-all bench`"));
    }
    on_device!(arguments.backend.as_ref(), |device| measure(arguments, &device))
}

fn measure<D: Device>(arguments: &Arguments, device: &D) -> Result<(), Box<dyn Error>> {
    let wanted = |name: &&Name| match arguments.only.is_empty() {
        true => **name != Name::Sleep,
        false => arguments.only.contains(name),
    };
    let names: Vec<Name> = Name::value_variants().iter().filter(wanted).copied().collect();
    let effort = if arguments.quick { Effort::QUICK } else { Effort::FULL };
    let interrupt = Interrupt::listen()?;
    let bar = progress_bar(names.len() as u64, "benchmarks");
    let mut rows = Vec::new();
    let outcome: Result<(), Box<dyn Error>> = names.into_iter().try_for_each(|name| {
        bar.set_message(name.to_string());
        if name == Name::Sleep {
            bar.suspend(|| measure_sleep(arguments, device))?;
            return interrupt.end();
        }
        let measured = measure_one(name, &device.with_memory(DEVICE_MEMORY), effort);
        let measured = measured.map_err(|error| Failed { bench: name.to_string(), source: error.into() })?;
        bar.inc(1);
        if arguments.json {
            bar.suspend(|| measured.iter().try_for_each(print_json))?;
        }
        rows.extend(measured);
        interrupt.end()
    });
    bar.finish_and_clear();
    if !arguments.json && !rows.is_empty() {
        print(row::table_of(&rows))?;
    }
    outcome
}

fn measure_sleep<D: Device>(arguments: &Arguments, device: &D) -> Result<(), Box<dyn Error>> {
    let device = device.with_memory(DEVICE_MEMORY);
    let failed =
        |error: vrampool_sleep::Error| Failed { bench: Name::Sleep.to_string(), source: error.into() };
    let rows =
        sleep::measure(&device, &device.touch()?, arguments.sleep_gib, arguments.quick).map_err(failed)?;
    if arguments.json {
        return rows.iter().try_for_each(print_json);
    }
    print(sleep::tables(&rows))
}

/// Runs one benchmark. Rows of [`Name::Sleep`] are of another kind.
fn measure_one<B: Rivals>(name: Name, device: &B, effort: Effort) -> Result<Vec<Row>, vrampool::Error> {
    match name {
        Name::Cuarena1 => pairs::measure(name, &[Workload::SINGLE], device, effort),
        Name::Cuarena2 => pairs::measure(name, &[Workload::Batch], device, effort),
        Name::Cuarena3 => pairs::measure(name, &[Workload::PingPong], device, effort),
        Name::Cuarena4 => pairs::measure(name, &[Workload::Doublings], device, effort),
        Name::Cuarena5 => compaction::measure(name, device, effort),
        Name::Cuarena6 => regions::measure(name, device, effort),
        Name::HitPair => hits::measure(name, device, effort),
        Name::Pair => pairs::measure(name, &Workload::PAIRS, device, effort),
        Name::Sleep => Ok(Vec::new()),
    }
}
