//! The program `vrampool`.

use clap::{CommandFactory, Parser};
use std::process::ExitCode;
use vrampool_cli::{Command, environment};

/// Run, measure and inspect bounded caching buffer pools for device memory.
#[derive(Debug, Parser)]
#[command(name = "vrampool", bin_name = "vrampool", version, after_help = environment())]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    vrampool_cli::main(|| Arguments::parse().command.run(Arguments::command()))
}
