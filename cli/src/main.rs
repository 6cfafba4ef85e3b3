//! The program `vrampool`: real workloads on pools.

#![deny(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod bench;
mod completions;
mod device;
mod devices;
mod fit;
mod interrupt;
mod kernels;
mod logger;
mod man;
mod pool_options;
mod record_options;
mod replay;
mod soak;
mod solve;
mod stdout;
mod timing;
mod trace;
mod trace_options;
mod train;

use clap::{CommandFactory, Parser, Subcommand};
use interrupt::Interrupted;
use std::process::ExitCode;
use stdout::{Closed, warn};
use vrampool::errors::chain;

/// The exit code of a program that a closed output pipe ends.
const CLOSED: u8 = 128 + 13;

/// The environment variables of the library, for the help.
const ENVIRONMENT: &str = "\
Environment variables, each of which a flag overrides:
  VRAMPOOL_BACKEND                 device, by a name that `devices` shows, or `auto`
  VRAMPOOL_SOURCE                  --source
  VRAMPOOL_SIZE_CLASSES            --size-classes
  VRAMPOOL_LIMIT_GB                --limit, GiB
  VRAMPOOL_MAX_CACHED_GB           --max-cached, GiB
  VRAMPOOL_MAX_BUFFERS_PER_BUCKET  --max-per-bucket
  VRAMPOOL_POOL_BUDGET_FRAC        --budget, as a share of a discrete device's memory, 0 to 1
  VRAMPOOL_OVERLAP                 --overlap
  VRAMPOOL_INITIAL                 --initial
Without a flag:
  VRAMPOOL_POOL_LARGE_BUCKET_MB    a unit of --size-classes multiple, MiB; 0 is fixed
  VRAMPOOL_PINNED_STAGING_MB       pinned memory for copies, MiB
  VRAMPOOL_SLEEP_CHUNK_MB          physical piece of memory that sleeps, MiB
  WGPU_BACKEND                     interface of wgpu, such as vulkan or gl
A variable VRAMPOOL_... with another name is a warning. The guide's page on size classes lists netcl's names.";

/// Run, measure and inspect bounded caching buffer pools for device memory.
#[derive(Debug, Parser)]
#[command(name = "vrampool", bin_name = "vrampool", version, after_help = ENVIRONMENT)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a network on handwritten digits, with every tensor in pool buffers.
    Train(train::Arguments),
    /// Replay recorded allocation traces through a pool.
    Replay(replay::Arguments),
    /// Run random traffic on pools of every source for hours, and report the resource usage.
    Soak(soak::Arguments),
    /// Show recorded allocation traces, and convert them to other formats.
    Trace(trace::Arguments),
    /// Solve an equation for many parameters, in chunks that fit a share of a device.
    Solve(solve::Arguments),
    /// Fit size classes to the requests of a recorded trace.
    Fit(fit::Arguments),
    /// Measure the time of allocating and freeing.
    Bench(bench::Arguments),
    /// List available devices, and why each other backend is unavailable.
    Devices(devices::Arguments),
    /// Print a script that completes commands and flags in a shell.
    Completions(completions::Arguments),
    /// Print the manual page, or write the pages of all commands.
    Man(man::Arguments),
}

fn main() -> ExitCode {
    logger::start();
    let outcome = match Arguments::parse().command {
        Command::Train(arguments) => train::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Solve(arguments) => solve::run(&arguments),
        Command::Fit(arguments) => fit::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments, Arguments::command()),
        Command::Man(arguments) => man::run(&arguments, Arguments::command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Closed>() => ExitCode::from(CLOSED),
        Err(error) => {
            let interrupted = error.downcast_ref::<Interrupted>().map(|interrupted| interrupted.exit_code);
            warn(format_args!("error: {}", chain(&*error)));
            interrupted.map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}
