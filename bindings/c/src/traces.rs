//! Traces by number: recorded from pools, loaded from files; and files that a program writes.

use crate::boundary::{self, Bytes, Out, Text, exports};
use crate::failure::Failure;
use crate::numbered::Numbered;
use crate::registry;
use serde_json::{Value, json};
use std::error::Error;
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::Arc;
use vrampool::errors::chain;
use vrampool_trace::output::Output;
use vrampool_trace::plot::{Picture, Plot};
use vrampool_trace::{Export, Format, Import, Recorder, Trace};

static TRACES: Numbered<Trace> = Numbered::new("trace", "freed");

/// Which device of a snapshot is the first that has a history.
const FIRST: i32 = -1;

exports! {
    fn vrampool_record_start(pool: u64, events: u64) {
        let events = if events == 0 { Recorder::DEFAULT_EVENTS } else { events };
        registry::get(pool)?.recording.start(events)
    }

    fn vrampool_record_look(pool: u64, trace: Out<'_, u64>, dropped: Out<'_, u64>) {
        trace.check("trace")?;
        let pool = registry::get(pool)?;
        let recorder = pool.recording.present()?;
        trace.set(taken(&recorder, pool.main.pool.name())?);
        dropped.set(recorder.dropped());
        Ok(())
    }

    fn vrampool_record_stop(pool: u64, trace: Out<'_, u64>, dropped: Out<'_, u64>) {
        let (pool, is_wanted) = (registry::get(pool)?, trace.check("trace").is_ok());
        let (number, left_out) = pool.recording.stop(|recorder| {
            let number = if is_wanted { taken(recorder, pool.main.pool.name())? } else { 0 };
            Ok((number, recorder.dropped()))
        })?;
        trace.set(number);
        dropped.set(left_out);
        Ok(())
    }

    fn vrampool_trace_load(path: Text<'_>, format: Text<'_>, device: c_int, trace: Out<'_, u64>) {
        trace.answer("trace", || Ok(add(read(path.required("path")?, format.optional("format")?, device)?)))
    }

    fn vrampool_trace_save(trace: u64, path: Text<'_>, format: Text<'_>) {
        let path = path.required("path")?;
        let format = format_for(format.optional("format")?, path)?;
        Export::new(format).save(&*TRACES.get(trace)?, path).map_err(failed("path"))
    }

    fn vrampool_trace_convert(
        source: Text<'_>,
        from_format: Text<'_>,
        device: c_int,
        target: Text<'_>,
        to_format: Text<'_>,
        trace: Out<'_, u64>,
        not_kept: Out<'_, *mut c_char>,
    ) {
        let (source, from_format) = (source.required("source")?, from_format.optional("from_format")?);
        let (target, to_format) = (target.required("target")?, to_format.optional("to_format")?);
        let output = Output::create(target).and_then(|output| output.distinct_from([Path::new(source)]));
        let output = output.map_err(failed("target"))?;
        let format = format_for(to_format, target)?;
        let converted = read(source, from_format, device)?;
        let losses = Export::new(format).convert(&converted, output).map_err(failed("target"))?;
        if trace.check("trace").is_ok() {
            trace.set(add(converted));
        }
        if not_kept.check("not_kept").is_ok() {
            let lines: Value = losses.to_string().lines().map(Value::from).collect();
            not_kept.set(boundary::give_text(lines.to_string()));
        }
        Ok(())
    }

    fn vrampool_trace_plot(trace: u64, pool: u64, path: Text<'_>, picture: Text<'_>) {
        let (path, picture) = (path.required("path")?, picture.optional("picture")?);
        let picture = picture.map_or_else(|| Ok(Picture::of_name(path)), str::parse).map_err(failed("picture"))?;
        let output = Output::create(path).map_err(failed("path"))?;
        let pool = registry::get(pool)?;
        // Without a trace, what the pool has in memory; else the trace as a pool with these settings serves it.
        let plot = match trace {
            0 => Plot::snapshot(pool.snapshot().to_string().as_bytes()),
            trace => Plot::like(&*TRACES.get(trace)?, &pool.main.pool),
        };
        let mut drawn = Vec::new();
        plot.map_err(failed("trace"))?.write(picture, &mut drawn).map_err(failed("picture"))?;
        output.save(drawn).map_err(failed("path"))
    }

    fn vrampool_trace_show(trace: u64, json: Out<'_, *mut c_char>) {
        json.answer("json", || Ok(boundary::give_text(summary(&*TRACES.get(trace)?).to_string())))
    }

    fn vrampool_trace_free(trace: u64) {
        TRACES.remove(trace).map(drop)
    }

    fn vrampool_file_write(path: Text<'_>, bytes: Bytes<'_>, count: usize) {
        let (path, bytes) = (path.required("path")?, bytes.read(count, "bytes")?);
        Output::create(path).and_then(|output| output.save(bytes)).map_err(failed("path"))
    }
}

fn taken(recorder: &Recorder, name: &str) -> Result<u64, Failure> {
    Ok(add(recorder.trace(name).map_err(failed("recording"))?))
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

fn summary(trace: &Trace) -> Value {
    let mut shown = json!(trace.summary());
    shown["warnings"] = trace.warnings().iter().map(ToString::to_string).collect();
    shown["sizes"] = json!(trace.size_ranges());
    shown
}

fn add(trace: Trace) -> u64 {
    TRACES.add(Arc::new(trace))
}

/// The named format, or that of the file's name.
fn format_for(name: Option<&str>, path: &str) -> Result<Format, Failure> {
    name.map_or_else(|| Ok(Format::of_name(path)), format_of)
}

fn format_of(name: &str) -> Result<Format, Failure> {
    name.parse().map_err(failed("format"))
}

/// An error with its causes, as a failure of an argument.
fn failed<E: Error + 'static>(argument: &str) -> impl Fn(E) -> Failure {
    move |error| Failure::invalid(argument, &chain(&error).to_string())
}
