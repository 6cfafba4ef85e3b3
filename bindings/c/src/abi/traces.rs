//! Recording and traces.

use crate::boundary::{self, Out, Text, guard};
use crate::failure::Status;
use crate::traces;
use std::ffi::{c_char, c_int};

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_record_start(pool: u64, events: u64) -> Status {
    guard(|| traces::start(pool, events))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_record_look(pool: u64, trace: Out<'_, u64>, dropped: Out<'_, u64>) -> Status {
    guard(|| {
        trace.check("trace")?;
        let (number, left_out) = traces::look(pool)?;
        trace.set(number);
        dropped.set(left_out);
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_record_stop(pool: u64, trace: Out<'_, u64>, dropped: Out<'_, u64>) -> Status {
    guard(|| {
        let (number, left_out) = traces::stop(pool, trace.check("trace").is_ok())?;
        trace.set(number);
        dropped.set(left_out);
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_trace_load(
    path: Text<'_>,
    format: Text<'_>,
    device: c_int,
    trace: Out<'_, u64>,
) -> Status {
    guard(|| {
        trace.answer("trace", || traces::load(path.required("path")?, format.optional("format")?, device))
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_trace_save(trace: u64, path: Text<'_>, format: Text<'_>) -> Status {
    guard(|| traces::save(trace, path.required("path")?, format.optional("format")?))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_trace_convert(
    source: Text<'_>,
    from_format: Text<'_>,
    device: c_int,
    target: Text<'_>,
    to_format: Text<'_>,
    trace: Out<'_, u64>,
    not_kept: Out<'_, *mut c_char>,
) -> Status {
    guard(|| {
        let source = (source.required("source")?, from_format.optional("from_format")?);
        let target = (target.required("target")?, to_format.optional("to_format")?);
        let (number, lines) = traces::convert(source, device, target)?;
        match trace.check("trace") {
            Ok(()) => trace.set(number),
            Err(_) => traces::free(number)?,
        }
        if not_kept.check("not_kept").is_ok() {
            not_kept.set(boundary::give_text(lines.to_string()));
        }
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_trace_plot(trace: u64, pool: u64, path: Text<'_>, picture: Text<'_>) -> Status {
    guard(|| traces::plot(trace, pool, path.required("path")?, picture.optional("picture")?))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_trace_show(trace: u64, json: Out<'_, *mut c_char>) -> Status {
    guard(|| json.answer("json", || Ok(boundary::give_text(traces::show(trace)?.to_string()))))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_trace_free(trace: u64) -> Status {
    guard(|| traces::free(trace))
}
