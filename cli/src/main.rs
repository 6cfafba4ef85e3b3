//! The program `vrampool`: real workloads on pools.

#![deny(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod bench;
mod device;
mod devices;
mod fit;
mod interrupt;
mod kernels;
mod logger;
mod pool_options;
mod record_options;
mod replay;
mod soak;
mod solve;
mod stdout;
mod trace;
mod trace_options;
mod train;

use clap::{Parser, Subcommand};
use interrupt::Interrupted;
use std::process::ExitCode;
use stdout::{Closed, warn};

/// The exit code of a program that the system ends because nobody reads its output.
const CLOSED: u8 = 128 + 13;

/// A bounded caching buffer pool for device memory, at work.
#[derive(Debug, Parser)]
#[command(name = "vrampool", bin_name = "vrampool", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a network on handwritten digits; every tensor of every step comes from a pool.
    Train(train::Arguments),
    /// Drive a pool with recorded allocation traces.
    Replay(replay::Arguments),
    /// Use pools of every source at random, for hours, and report what they take of the process.
    Soak(soak::Arguments),
    /// Look at recorded allocation traces, and write them in other formats.
    Trace(trace::Arguments),
    /// Sweep through the parameters of an equation, in chunks that fit its share of a device.
    Solve(solve::Arguments),
    /// Fit size classes to what a recorded trace asks for.
    Fit(fit::Arguments),
    /// Time what allocating and freeing costs.
    Bench(bench::Arguments),
    /// List what there is to run on, and why the rest is not there.
    Devices(devices::Arguments),
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
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Closed>() => ExitCode::from(CLOSED),
        Err(error) => {
            let interrupted = error.downcast_ref::<Interrupted>().map(|interrupted| interrupted.exit_code);
            warn(format_args!("error: {error}"));
            interrupted.map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}
