//! `vrampool trace plot`: a trace as a picture.

use super::input::Input;
use crate::device::{Device, on_device};
use crate::pool_options::{PoolOptions, build, bytes_or_unlimited};
use crate::stdout::print;
use crate::trace_options::spinner;
use clap::Args;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use vrampool::Pool;
use vrampool_trace::output::{Output, shown};
use vrampool_trace::plot::{Picture, Plot};

/// Flags of `vrampool trace plot`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// The file to write, which needs no network and no other file
    /// [default: report.html, or report.svg for one chart]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The picture: page (HTML with all charts), bytes or addresses (SVG)
    /// [default: bytes if the name of the file ends with .svg, else page]
    #[arg(long, value_name = "PICTURE")]
    picture: Option<Picture>,
    /// Open the file with the system's viewer
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    pool: PoolOptions,
    /// Capacity of the host device, or `unlimited`; no buffer is written
    #[arg(long, value_name = "SIZE", default_value = "1TiB", value_parser = bytes_or_unlimited)]
    device_memory: u64,
}

/// The system has no viewer, or it does not start.
#[derive(Debug, thiserror::Error)]
#[error("no viewer opens {}; open it in a browser", shown(.path))]
struct NoViewer {
    path: PathBuf,
    source: io::Error,
}

/// Draws the trace, replayed once through a pool, or the snapshot as it is.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let inputs = arguments.pool.inputs().chain([arguments.input.file.as_path()]);
    let is_chart = arguments.picture.is_some_and(|picture| picture != Picture::Page);
    let usual = PathBuf::from(if is_chart { "report.svg" } else { "report.html" });
    let output = Output::create(arguments.output.as_ref().unwrap_or(&usual))?.distinct_from(inputs)?;
    on_device!(arguments.pool.backend.as_ref(), |device| draw(arguments, &device, output))
}

fn draw<D: Device>(arguments: &Arguments, device: &D, output: Output) -> Result<(), Box<dyn Error>> {
    let plot = match arguments.input.snapshot() {
        Some(json) => Plot::snapshot(json),
        None => {
            let trace = arguments.input.read()?;
            let spinner = spinner();
            spinner.set_message(format!("replaying {}", trace.name()));
            let device = device.with_memory(arguments.device_memory);
            let builder = Pool::builder(&device).from_environment()?.name(trace.name());
            let plot = Plot::replay(&trace, &build(arguments.pool.apply(builder))?);
            spinner.finish_and_clear();
            plot
        }
    };
    let mut picture = Vec::new();
    plot?.write(arguments.picture.unwrap_or_else(|| Picture::of_name(output.path())), &mut picture)?;
    let path = &output.path().to_owned();
    output.save(picture)?;
    if !arguments.open {
        return print(format_args!("{}: open it in a browser", shown(path)));
    }
    print(shown(path))?;
    // Absolute: a name may begin with a hyphen.
    let opened = std::path::absolute(path).and_then(open::that_detached);
    Ok(opened.map_err(|source| NoViewer { path: path.clone(), source })?)
}
