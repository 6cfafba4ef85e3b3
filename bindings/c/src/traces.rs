//! Traces by number: recorded from pools, loaded from files.

use crate::failure::Failure;
use crate::numbered::Numbered;
use crate::registry;
use serde_json::{Value, json};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use vrampool::errors::chain;
use vrampool_trace::output::Output;
use vrampool_trace::plot::{Picture, Plot};
use vrampool_trace::{Export, Format, Import, Recorder, Trace};

static TRACES: Numbered<Trace> = Numbered::new("trace", "freed");

/// Which device of a snapshot is the first that has a history.
const FIRST: i32 = -1;

pub(crate) fn start(pool: u64, events: u64) -> Result<(), Failure> {
    let events = if events == 0 { Recorder::DEFAULT_EVENTS } else { events };
    registry::get(pool)?.recording.start(events)
}

/// A trace of what was recorded so far, and how many allocations were left out.
pub(crate) fn look(pool: u64) -> Result<(u64, u64), Failure> {
    let pool = registry::get(pool)?;
    let recorder = pool.recording.present()?;
    Ok((taken(&recorder, pool.main.pool.name())?, recorder.dropped()))
}

/// As [`look`], and no more is recorded; without a trace where none is wanted.
pub(crate) fn stop(pool: u64, wants_trace: bool) -> Result<(u64, u64), Failure> {
    let pool = registry::get(pool)?;
    pool.recording.stop(|recorder| {
        let trace = if wants_trace { taken(recorder, pool.main.pool.name())? } else { 0 };
        Ok((trace, recorder.dropped()))
    })
}

fn taken(recorder: &Recorder, name: &str) -> Result<u64, Failure> {
    Ok(add(recorder.trace(name).map_err(failed("recording"))?))
}

pub(crate) fn load(path: &str, format: Option<&str>, device: i32) -> Result<u64, Failure> {
    Ok(add(read(path, format, device)?))
}

/// A file's name, and its format unless its content or its name determines that.
pub(crate) type Place<'a> = (&'a str, Option<&'a str>);

/// Reads one file and writes another; the trace, and a line for each thing that the format does not keep.
pub(crate) fn convert(source: Place<'_>, device: i32, target: Place<'_>) -> Result<(u64, Value), Failure> {
    let output = Output::create(target.0).and_then(|output| output.distinct_from([Path::new(source.0)]));
    let output = output.map_err(failed("target"))?;
    let format = target.1.map_or_else(|| Ok(Format::of_name(target.0)), format_of)?;
    let trace = read(source.0, source.1, device)?;
    let losses = Export::new(format).convert(&trace, output).map_err(failed("target"))?;
    let lines = losses.to_string().lines().map(Value::from).collect();
    Ok((add(trace), Value::Array(lines)))
}

fn read(path: &str, format: Option<&str>, device: i32) -> Result<Trace, Failure> {
    let mut import = Import::new();
    if let Some(format) = format {
        import = import.format(format_of(format)?);
    }
    match u32::try_from(device) {
        Ok(device) => import = import.device(device),
        Err(_) if device == FIRST => {}
        Err(_) => {
            return Err(Failure::invalid(
                "device",
                "use a device number from 0, or -1 for the first device with a history",
            ));
        }
    }
    import.read(path).map_err(failed("trace"))
}

pub(crate) fn save(trace: u64, path: &str, format: Option<&str>) -> Result<(), Failure> {
    let format = format.map_or_else(|| Ok(Format::of_name(path)), format_of)?;
    Export::new(format).save(&*TRACES.get(trace)?, path).map_err(failed("path"))
}

/// Draws a trace as a pool with the settings of this one serves it; without a trace, what the pool has in memory.
pub(crate) fn plot(trace: u64, pool: u64, path: &str, picture: Option<&str>) -> Result<(), Failure> {
    let picture =
        picture.map_or_else(|| Ok(Picture::of_name(path)), str::parse).map_err(failed("picture"))?;
    let output = Output::create(path).map_err(failed("path"))?;
    let pool = registry::get(pool)?;
    let plot = match trace {
        0 => Plot::snapshot(pool.snapshot().to_string().as_bytes()),
        trace => Plot::like(&*TRACES.get(trace)?, &pool.main.pool),
    };
    let plot = plot.map_err(failed("trace"))?;
    let mut drawn = Vec::new();
    plot.write(picture, &mut drawn).map_err(failed("picture"))?;
    output.save(drawn).map_err(failed("path"))
}

pub(crate) fn show(trace: u64) -> Result<Value, Failure> {
    let trace = TRACES.get(trace)?;
    let mut shown = json!(trace.summary());
    shown["warnings"] = trace.warnings().iter().map(ToString::to_string).collect();
    shown["sizes"] = json!(trace.size_ranges());
    Ok(shown)
}

pub(crate) fn free(trace: u64) -> Result<(), Failure> {
    TRACES.remove(trace).map(drop)
}

fn add(trace: Trace) -> u64 {
    TRACES.add(Arc::new(trace))
}

fn format_of(name: &str) -> Result<Format, Failure> {
    name.parse().map_err(failed("format"))
}

/// An error with its causes, as a failure of an argument.
pub(crate) fn failed<E: Error + 'static>(argument: &str) -> impl Fn(E) -> Failure {
    move |error| Failure::invalid(argument, &chain(&error).to_string())
}
