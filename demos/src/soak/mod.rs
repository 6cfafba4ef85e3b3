//! `vrampool soak`: random traffic for hours, on pools of every source at 80, 95 and 100 % of their limits.
//!
//! Faults are planned where the device allows it, which is the host's. All pools live for the whole run and
//! take turns, so that each tenth of the run shows each of them.

mod cell;
mod report;

use crate::device::Device;
use cell::{Cell, Settings};
use clap::{Args, value_parser};
use report::Tenth;
use std::error::Error;
use std::io::Write;
use std::time::Duration;
use vrampool::Source;
use vrampool::any::Name;
use vrampool_cli::on_device;

/// Flags of `vrampool soak`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    /// Duration of the run, hours; fractions are allowed
    #[arg(long, value_name = "HOURS", default_value = "3", conflicts_with = "seconds")]
    hours: f64,
    /// Duration of the run, seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u32>,
    /// The seed of the random traffic
    #[arg(long, value_name = "SEED", default_value = "1")]
    seed: u64,
    /// Threads that use each pool concurrently
    #[arg(long, value_name = "COUNT", default_value = "4", value_parser = value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Run without injected faults of the host device
    #[arg(long)]
    no_faults: bool,
    /// The device to run on, by a name that `devices` shows, or `auto` [default: VRAMPOOL_BACKEND, or host]
    #[arg(long, value_name = "DEVICE")]
    backend: Option<Name>,
}

/// Parts of the run that are reported and compared.
const TENTHS: u32 = 10;

/// Shares of the limit that a pool's threads keep live, percent.
const LEVELS: [u64; 3] = [80, 95, 100];

/// Runs the traffic, and prints one JSON object for each tenth of it and one for the whole.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let total = match arguments.seconds {
        Some(seconds) => Duration::from_secs(seconds.into()),
        None => Duration::try_from_secs_f64(arguments.hours * 3600.0)
            .map_err(|_| format!("--hours {} is not a duration; give a positive number", arguments.hours))?,
    };
    on_device!(arguments.backend.as_ref(), |device| soak(arguments, total, &device))
}

/// The whole run, on a device of whatever type.
fn soak<D: Device>(arguments: &Arguments, total: Duration, device: &D) -> Result<(), Box<dyn Error>> {
    let mut cells = Vec::new();
    for (number, source) in Source::ALL.iter().copied().enumerate() {
        for level in LEVELS {
            let seed = arguments.seed ^ (number as u64) << 32 ^ level << 40;
            let settings =
                Settings { source, level, seed, threads: arguments.threads, faults: !arguments.no_faults };
            if let Some(cell) = Cell::new(settings, device)? {
                cells.push(cell);
            }
        }
    }
    let time = total / TENTHS / cells.len() as u32;
    // Each pool has its memory before the first tenth, to which the others are compared.
    let mut warm_up = Tenth::new(0);
    for cell in &mut cells {
        let turn = cell.run(time / TENTHS)?;
        warm_up.add(cell, &turn)?;
    }
    let mut tenths: Vec<Tenth> = Vec::new();
    for number in 1..=TENTHS {
        let mut tenth = Tenth::new(number);
        for cell in &mut cells {
            let turn = cell.run(time)?;
            tenth.add(cell, &turn)?;
        }
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&tenth)?)?;
        tenths.push(tenth);
    }
    let mut findings = warm_up.findings;
    findings.extend(cells.into_iter().filter_map(|cell| cell.finish().err()));
    let report = report::Whole::of(arguments.seed, total, &tenths, findings);
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?)?;
    match report.findings.as_slice() {
        [] => Ok(()),
        findings => Err(findings.join("; ").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn a_time_that_is_none_is_an_error() {
        for hours in ["-1", "NaN", "inf"] {
            let program = Program::try_parse_from(["soak", &format!("--hours={hours}")]).expect("flags");
            assert!(run(&program.arguments).is_err(), "{hours}");
        }
    }
}
