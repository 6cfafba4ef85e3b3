//! The program `vrampool` with the commands that demonstrate the library: `train`, `solve` and `soak`. It is not installed.

#![deny(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod device;
mod kernels;
mod soak;
mod solve;
mod train;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use vrampool_cli::environment;

/// Run, measure and inspect bounded caching buffer pools for device memory.
#[derive(Debug, Parser)]
#[command(name = "vrampool", bin_name = "vrampool", version, after_help = environment())]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a network on handwritten digits, with every tensor in pool buffers.
    Train(train::Arguments),
    /// Solve an equation for many parameters, in chunks that fit a share of a device.
    Solve(solve::Arguments),
    /// Run random traffic on pools of every source for hours, and report the resource usage.
    Soak(soak::Arguments),
    #[command(flatten)]
    Program(vrampool_cli::Command),
}

fn main() -> ExitCode {
    vrampool_cli::main(|| match Arguments::parse().command {
        Command::Train(arguments) => train::run(&arguments),
        Command::Solve(arguments) => solve::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Program(command) => command.run(Arguments::command()),
    })
}
