//! The commands of the program `vrampool`, for the program itself and for programs that add commands to them.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod bench;
mod completed;
mod completions;
pub mod device;
mod devices;
mod fit;
pub mod interrupt;
mod logger;
mod man;
pub mod pool_options;
pub mod record_options;
mod replay;
pub mod stdout;
pub mod table;
mod timing;
mod top;
mod trace;
mod trace_options;

use clap::Subcommand;
use std::error::Error;
use std::process::ExitCode;
use stdout::{Ended, warn};
pub use trace_options::progress_bar;
use vrampool::errors::chain;

/// The environment variables of the library, for the help.
#[must_use]
pub fn environment() -> String {
    let flags =
        pool_options::FLAGS.iter().map(|(setting, flag, _)| (setting.variables[0].name, format!("--{flag}")));
    let others = [
        ("VRAMPOOL_PINNED_STAGING", "pinned memory for copies"),
        ("WGPU_BACKEND", "interface of wgpu, such as vulkan or gl"),
    ];
    let backend = ("VRAMPOOL_BACKEND", "device by its name in `devices`, or `auto`".to_owned());
    let all = [backend].into_iter().chain(flags).chain(others.map(|(name, text)| (name, text.to_owned())));
    let lines: String = all.map(|(name, text)| format!("  {name:<32} {text}\n")).collect();
    format!(
        "Environment variables. A flag that is listed overrides its variable, with the same text:\n{lines}\
         A variable VRAMPOOL_... with another name is a warning. The guide's page on settings lists names of others."
    )
}

/// A command of the program.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
#[allow(private_interfaces, reason = "the flags of a command are its own")]
pub enum Command {
    /// Replay recorded allocation traces through a pool.
    Replay(replay::Arguments),
    /// Show recorded allocation traces, and convert them to other formats.
    Trace(trace::Arguments),
    /// Fit size classes to the requests of a recorded trace.
    Fit(fit::Arguments),
    /// Measure the time of allocating and freeing.
    Bench(bench::Arguments),
    /// Show pools of running processes by their exporters, live.
    Top(top::Arguments),
    /// List available devices, and why each other backend is unavailable.
    Devices(devices::Arguments),
    /// Print a script that completes commands and flags in a shell.
    Completions(completions::Arguments),
    /// Print the manual page, or write the pages of all commands.
    Man(man::Arguments),
}

impl Command {
    /// Runs it. `program` is the whole program, of which completions and manual pages are made.
    ///
    /// # Errors
    /// As the command reports them.
    pub fn run(&self, program: clap::Command) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Replay(arguments) => replay::run(arguments),
            Self::Trace(arguments) => trace::run(arguments),
            Self::Fit(arguments) => fit::run(arguments),
            Self::Bench(arguments) => bench::run(arguments),
            Self::Top(arguments) => top::run(arguments),
            Self::Devices(arguments) => devices::run(arguments),
            Self::Completions(arguments) => completions::run(arguments, program),
            Self::Man(arguments) => man::run(arguments, program),
        }
    }
}

/// Runs a program: warnings and an error go to standard error, and the error decides the exit code.
pub fn main(program: impl FnOnce() -> Result<(), Box<dyn Error>>) -> ExitCode {
    logger::start();
    let Err(error) = program() else { return ExitCode::SUCCESS };
    let ended = error.downcast_ref::<Ended>();
    if ended.is_none_or(|ended| !ended.text.is_empty()) {
        warn(format_args!("error: {}", chain(&*error)));
    }
    ended.map_or(ExitCode::FAILURE, |ended| ended.exit_code.into())
}
