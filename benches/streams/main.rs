//! Streams of one pool beside a pool for each stream: kernels that take time, on 1, 2 and 4 streams.
//!
//! Every scene writes a pattern into its memory, keeps the stream busy, and verifies the pattern: a forgotten
//! wait shows as wrong bytes, a needless wait as time. Each line of JSON compares one pool for all streams with a pool
//! for each stream, which never waits for another stream's memory.
//!
//! `cargo bench --bench streams -- [OPTION…]`; `--help` lists the options. Without `--device`, the scenes run
//! on the host device, and on the first CUDA and OpenCL device if the feature is enabled and a device opens.

mod case;
mod kernels;
mod measurement;
mod options;
mod row;
mod scene;

use crate::case::{Case, cases};
use crate::kernels::Kernels;
use crate::options::Options;
use crate::row::Row;
use std::error::Error;
use std::process::ExitCode;
use vrampool::any::{self, AnyDevice};
use vrampool::host::HostDevice;
use vrampool::{Backend, BackendError};

/// Addresses for arenas; pages that no kernel touches take no memory.
const HOST_MEMORY_BYTES: u64 = 1 << 40;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Some(options) = Options::parse(std::env::args().skip(1))? else {
        println!("{}", options::HELP);
        return Ok(ExitCode::SUCCESS);
    };
    let mut rows = Vec::new();
    for name in &options.devices {
        match any::open(name) {
            Ok(device) => rows.extend(run(&device, &options)?),
            // Without `--device`, a device that is absent is no failure.
            Err(error) if options.devices_are_defaults => eprintln!("{name}: {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(path) = &options.out {
        let lines: String = rows.iter().map(|row| row.json() + "\n").collect();
        std::fs::write(path, lines)?;
    }
    let wrong = rows.iter().filter(|row| row.wrong_bytes > 0).count();
    if wrong > 0 {
        eprintln!("{wrong} rows have wrong bytes: memory was reused before earlier work on it was complete");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs all cases on the device's own type, so that times include no dispatch.
fn run(device: &AnyDevice, options: &Options) -> Result<Vec<Row>, Box<dyn Error>> {
    match device {
        AnyDevice::Host(_) => {
            let device = HostDevice::builder().memory_limit(HOST_MEMORY_BYTES).build();
            let kernels = kernels::HostKernels::new(&device);
            run_on(&device, &kernels, "host", options)
        }
        #[cfg(feature = "cuda")]
        AnyDevice::Cuda(device) => run_on(device, &kernels::CudaKernels::load(device)?, "cuda", options),
        #[cfg(feature = "opencl")]
        AnyDevice::OpenCl(device) => {
            run_on(device, &kernels::OpenClKernels::load(device)?, "opencl", options)
        }
        other => {
            let reason = format!("{} has no kernel of a given length", other.properties().name);
            Err(BackendError::invalid("--device", reason).into())
        }
    }
}

fn run_on<B: Backend, K: Kernels<B>>(
    device: &B,
    kernels: &K,
    backend: &'static str,
    options: &Options,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for case in cases(device, options) {
        for row in measure(device, kernels, backend, &case, options)? {
            println!("{}", row.json());
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The rows of one case: one for each number of streams.
fn measure<B: Backend, K: Kernels<B>>(
    device: &B,
    kernels: &K,
    backend: &'static str,
    case: &Case,
    options: &Options,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let amount = options.amount(backend);
    let mut rows = Vec::new();
    let mut alone = None;
    for &streams in case.scene.streams().iter().filter(|&count| options.streams.contains(count)) {
        let measured = match measurement::measure(device, kernels, case, streams, amount) {
            Ok(measured) => measured,
            Err(error) if error.is_out_of_memory() => {
                eprintln!("{} on {streams} streams: {error}", case.name());
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if streams == 1 {
            alone = Some(measured.one.time);
        }
        rows.push(Row::new(backend, case, streams, amount, alone, measured));
    }
    Ok(rows)
}
