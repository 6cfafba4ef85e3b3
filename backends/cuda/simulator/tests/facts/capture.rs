//! Captures: beginning, ending, and the calls that they forbid.

use crate::driver::{
    CAPTURE_IMPLICIT, CAPTURE_INVALIDATED, CAPTURE_UNSUPPORTED, CAPTURE_WRONG_THREAD, Code, ILLEGAL_STATE,
    INVALID_VALUE, SUCCESS,
};
use crate::fact::{Check, Fact, Scene, fact};
use crate::scene::{LEGACY, NO_TIMING, NON_BLOCKING, PER_THREAD, physical, read_write};
use std::ffi::c_void;
use std::ptr::null_mut;

pub(crate) const GLOBAL: i32 = 0;
pub(crate) const THREAD: i32 = 1;
pub(crate) const RELAXED: i32 = 2;

pub(crate) fn status(d: &Scene, stream: usize) -> i32 {
    let mut status = 9;
    d.is("cuStreamIsCapturing", d.cuStreamIsCapturing(stream, &mut status), SUCCESS);
    status
}

pub(crate) fn begin(d: &Scene, stream: usize, mode: i32) -> Check {
    d.must("cuStreamBeginCapture", d.cuStreamBeginCapture_v2(stream, mode))
}

/// The end of a capture that a call invalidated.
pub(crate) fn invalidated(d: &Scene, stream: usize) {
    d.eq("status", status(d, stream), 2);
    d.is("end", d.cuStreamEndCapture(stream, &mut 0), CAPTURE_INVALIDATED);
}

/// A call that invalidates a capture of this mode, whose stream it gets.
fn forbidden(d: &Scene, mode: i32, name: &str, call: impl FnOnce(usize) -> Code) -> Check {
    captured(d, mode, name, CAPTURE_UNSUPPORTED, call)
}

/// A call that does not.
fn allowed(d: &Scene, mode: i32, name: &str, call: impl FnOnce(usize) -> Code) -> Check {
    captured(d, mode, name, SUCCESS, call)
}

/// The result of a call while a stream captures, and the capture's state and end after it.
fn captured(d: &Scene, mode: i32, name: &str, expected: Code, call: impl FnOnce(usize) -> Code) -> Check {
    let stream = d.stream(NON_BLOCKING)?;
    begin(d, stream, mode)?;
    d.is(name, call(stream), expected);
    let invalid = expected != SUCCESS;
    d.eq(&format!("status after {name}"), status(d, stream), if invalid { 2 } else { 1 });
    let (mut graph, end) = (7, if invalid { CAPTURE_INVALIDATED } else { SUCCESS });
    d.is(&format!("end after {name}"), d.cuStreamEndCapture(stream, &mut graph), end);
    d.eq("no graph", graph == 0, invalid);
    d.eq("status", status(d, stream), 0);
    Ok(())
}

pub(crate) const FACTS: &[Fact] = &[
    fact!("capture: begins and ends", |d| {
        let (stream, pointer, mut graph) = (d.stream(NON_BLOCKING)?, d.alloc(4096)?, 0);
        d.eq("status before", status(d, stream), 0);
        begin(d, stream, GLOBAL)?;
        d.eq("status", status(d, stream), 1);
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 7, 4096, stream), SUCCESS);
        d.is("end", d.cuStreamEndCapture(stream, &mut graph), SUCCESS);
        d.eq("status after", status(d, stream), 0);
        d.eq("nothing ran", d.word(pointer)?, 0);
        let mut count = 0;
        d.is("cuGraphGetNodes", d.cuGraphGetNodes(graph, null_mut(), &mut count), SUCCESS);
        d.eq("nodes", count, 1);
    }),
    fact!("capture: the default streams", |d| {
        d.is("0", d.cuStreamBeginCapture_v2(0, GLOBAL), CAPTURE_UNSUPPORTED);
        d.is("1", d.cuStreamBeginCapture_v2(LEGACY, GLOBAL), CAPTURE_UNSUPPORTED);
        d.eq("status of 0", status(d, 0), 0);
        d.is("2", d.cuStreamBeginCapture_v2(PER_THREAD, GLOBAL), SUCCESS);
        d.is("end of 2", d.cuStreamEndCapture(PER_THREAD, &mut 0), SUCCESS);
    }),
    fact!("capture: beginning twice, ending without a beginning", |d| {
        let (stream, mut graph) = (d.stream(NON_BLOCKING)?, 7);
        d.is("end", d.cuStreamEndCapture(stream, &mut graph), ILLEGAL_STATE);
        d.eq("graph", graph, 0);
        d.is("mode 3", d.cuStreamBeginCapture_v2(stream, 3), INVALID_VALUE);
        begin(d, stream, GLOBAL)?;
        d.is("begin again", d.cuStreamBeginCapture_v2(stream, GLOBAL), ILLEGAL_STATE);
        d.eq("status", status(d, stream), 1);
        d.is("end", d.cuStreamEndCapture(stream, &mut graph), SUCCESS);
    }),
    fact!("capture: synchronisation and asking for the stream's number invalidate in every mode", |d| {
        for mode in [GLOBAL, THREAD, RELAXED] {
            forbidden(d, mode, "cuStreamSynchronize", |stream| d.cuStreamSynchronize(stream))?;
            forbidden(d, mode, "cuStreamQuery", |stream| d.cuStreamQuery(stream))?;
            let mut id = 0;
            forbidden(d, mode, "cuStreamGetId", |stream| d.cuStreamGetId(stream, &mut id))?;
            forbidden(d, mode, "cuCtxSynchronize", |_| d.cuCtxSynchronize())?;
        }
    }),
    fact!("capture: calls that the global mode forbids", |d| {
        let (pointer, mut other) = (d.alloc(4096)?, 0);
        let (event, stream) = (d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?);
        d.must("cuEventRecord", d.cuEventRecord(event, stream))?;
        forbidden(d, GLOBAL, "cuMemAlloc", |_| d.cuMemAlloc_v2(&mut other, 4096))?;
        forbidden(d, GLOBAL, "cuMemFree", |_| d.cuMemFree_v2(pointer))?;
        forbidden(d, GLOBAL, "cuMemHostAlloc", |_| d.cuMemHostAlloc(&mut other, 4096, 0))?;
        forbidden(d, GLOBAL, "cuEventQuery", |_| d.cuEventQuery(event))?;
        forbidden(d, GLOBAL, "cuEventSynchronize", |_| d.cuEventSynchronize(event))?;
        forbidden(d, GLOBAL, "cuStreamSynchronize of another", |_| d.cuStreamSynchronize(stream))?;
        forbidden(d, GLOBAL, "cuStreamQuery of another", |_| d.cuStreamQuery(stream))?;
        allowed(d, GLOBAL, "cuMemsetD8", |_| d.cuMemsetD8_v2(pointer, 1, 16))?;
        allowed(d, GLOBAL, "cuMemsetD8Async in the legacy stream", |_| d.cuMemsetD8Async(pointer, 1, 16, 0))?;
    }),
    fact!("capture: calls that the global mode allows", |d| {
        let (mut pool, mut pointer, mut handle, unit) = (0, 0, 0, d.unit()?);
        d.must("pool", d.cuDeviceGetDefaultMemPool(&mut pool, 0))?;
        let (mut free, mut total) = (0, 0);
        allowed(d, GLOBAL, "cuEventCreate", |_| d.cuEventCreate(&mut handle, NO_TIMING))?;
        allowed(d, GLOBAL, "cuStreamCreate", |_| d.cuStreamCreate(&mut handle, NON_BLOCKING))?;
        allowed(d, GLOBAL, "cuMemGetInfo", |_| d.cuMemGetInfo_v2(&mut free, &mut total))?;
        allowed(d, GLOBAL, "cuMemAddressReserve", |_| d.cuMemAddressReserve(&mut pointer, unit, 0, 0, 0))?;
        let mut memory = 0;
        allowed(d, GLOBAL, "cuMemCreate", |_| d.cuMemCreate(&mut memory, unit, &physical(0), 0))?;
        allowed(d, GLOBAL, "cuMemMap", |_| d.cuMemMap(pointer, unit, 0, memory, 0))?;
        allowed(d, GLOBAL, "cuMemSetAccess", |_| d.cuMemSetAccess(pointer, unit, &read_write(0), 1))?;
        allowed(d, GLOBAL, "cuMemUnmap", |_| d.cuMemUnmap(pointer, unit))?;
        forbidden(d, GLOBAL, "cuMemPoolTrimTo", |_| d.cuMemPoolTrimTo(pool, 0))?;
    }),
    fact!("capture: the thread-local mode forbids calls of its own thread", |d| {
        let stream = d.stream(NON_BLOCKING)?;
        let invalidated = (CAPTURE_UNSUPPORTED, 2, CAPTURE_INVALIDATED);
        for (mode, (expected, state, end)) in
            [(GLOBAL, invalidated), (THREAD, (SUCCESS, 1, SUCCESS)), (RELAXED, (SUCCESS, 1, SUCCESS))]
        {
            begin(d, stream, mode)?;
            let code = d.elsewhere(|| d.cuMemAlloc_v2(&mut 0, 4096));
            d.is(&format!("cuMemAlloc in another thread, mode {mode}"), code, expected);
            d.eq("status", status(d, stream), state);
            d.is("end", d.cuStreamEndCapture(stream, &mut 0), end);
        }
        forbidden(d, THREAD, "cuMemAlloc in the thread's mode", |_| d.cuMemAlloc_v2(&mut 0, 4096))?;
        allowed(d, RELAXED, "cuMemAlloc in the relaxed mode", |_| d.cuMemAlloc_v2(&mut 0, 4096))?;
    }),
    fact!("capture: a thread may exchange its mode", |d| {
        let (stream, mut mode) = (d.stream(NON_BLOCKING)?, RELAXED);
        begin(d, stream, GLOBAL)?;
        d.is("exchange", d.cuThreadExchangeStreamCaptureMode(&mut mode), SUCCESS);
        d.eq("mode before", mode, GLOBAL);
        d.is("cuMemAlloc", d.cuMemAlloc_v2(&mut 0, 4096), SUCCESS);
        d.eq("status", status(d, stream), 1);
        d.is("exchange", d.cuThreadExchangeStreamCaptureMode(&mut mode), SUCCESS);
        d.eq("mode between", mode, RELAXED);
        d.is("end", d.cuStreamEndCapture(stream, &mut 0), SUCCESS);
        mode = 7;
        d.is("mode 7", d.cuThreadExchangeStreamCaptureMode(&mut mode), SUCCESS);
    }),
    fact!("capture: a mode without a place for it", |d| {
        d.is("null", d.cuThreadExchangeStreamCaptureMode(null_mut()), INVALID_VALUE);
    })
    .simulator_only(),
    fact!("capture: a mode that does not exist", |d| {
        let mut mode = 7;
        d.is("mode 7", d.cuThreadExchangeStreamCaptureMode(&mut mode), SUCCESS);
        d.eq("mode before", mode, GLOBAL);
        d.is("exchange", d.cuThreadExchangeStreamCaptureMode(&mut mode), SUCCESS);
        d.note("mode after", mode);
    }),
    fact!("capture: copies in the global mode", |d| {
        let (pointer, other, mut bytes) = (d.alloc(4096)?, d.alloc(4096)?, [0_u8; 64]);
        for mode in [GLOBAL, THREAD, RELAXED] {
            for call in 0..4 {
                let stream = d.stream(NON_BLOCKING)?;
                begin(d, stream, mode)?;
                let (name, code) = match call {
                    0 => ("cuMemcpyDtoH", d.cuMemcpyDtoH_v2(bytes.as_mut_ptr(), pointer, 64)),
                    1 => ("cuMemcpyHtoD", d.cuMemcpyHtoD_v2(pointer, bytes.as_ptr(), 64)),
                    2 => ("cuMemcpy", d.cuMemcpy(pointer, other, 64)),
                    _ => ("cuMemcpyAsync from pageable memory", {
                        d.cuMemcpyAsync(pointer, bytes.as_ptr() as u64, 64, stream)
                    }),
                };
                d.note(&format!("{name}, mode {mode}"), code);
                d.note("status", status(d, stream));
                d.note("end", d.cuStreamEndCapture(stream, &mut 0));
            }
        }
    }),
    fact!("capture: only a relaxed capture ends in another thread", |d| {
        let stream = d.stream(NON_BLOCKING)?;
        for (mode, expected) in
            [(GLOBAL, CAPTURE_WRONG_THREAD), (THREAD, CAPTURE_WRONG_THREAD), (RELAXED, SUCCESS)]
        {
            begin(d, stream, mode)?;
            let code = d.elsewhere(|| d.cuStreamEndCapture(stream, &mut 0));
            d.is(&format!("end in another thread, mode {mode}"), code, expected);
            // The attempt has ended the capture.
            d.is("end in its own thread", d.cuStreamEndCapture(stream, &mut 0), ILLEGAL_STATE);
        }
    }),
    fact!("capture: identities", |d| {
        let stream = d.stream(NON_BLOCKING)?;
        let info = |stream| {
            let (mut status, mut id, mut graph, mut count) = (9, 0, 0, 0);
            let code =
                d.cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, null_mut(), &mut count);
            d.is("cuStreamGetCaptureInfo", code, SUCCESS);
            (status, id, graph != 0, count)
        };
        d.eq("status outside of one", info(stream).0, 0);
        begin(d, stream, RELAXED)?;
        let first = info(stream);
        d.eq("status", first.0, 1);
        d.eq("graph", first.2, true);
        d.eq("dependencies", first.3, 0);
        let (event, forked) = (d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?);
        d.fork(event, stream, forked);
        d.eq("a forked stream is of the same", info(forked).1 == first.1, true);
        d.fork(event, forked, stream);
        d.is("end", d.cuStreamEndCapture(stream, &mut 0), SUCCESS);
        d.eq("the forked one has ended", status(d, forked), 0);
        begin(d, stream, RELAXED)?;
        d.eq("the next has another", info(stream).1 != first.1, true);
        d.is("end", d.cuStreamEndCapture(stream, &mut 0), SUCCESS);
        d.is("of the legacy stream", d.cuStreamIsCapturing(0, &mut 0), SUCCESS);
        begin(d, stream, GLOBAL)?;
        d.is("of the legacy stream, while another captures", d.cuStreamIsCapturing(0, &mut 0), SUCCESS);
        let blocking = d.stream(0)?;
        begin(d, blocking, RELAXED)?;
        d.is("of it, while a blocking one captures", d.cuStreamIsCapturing(0, &mut 0), CAPTURE_IMPLICIT);
        d.is("which goes on", d.cuStreamEndCapture(blocking, &mut 0), SUCCESS);
    }),
    fact!("capture: questions about the legacy stream beside a blocking one that captures", |d| {
        let stream = d.stream(0)?;
        for mode in [GLOBAL, THREAD, RELAXED] {
            begin(d, stream, mode)?;
            let mut answer = 7;
            d.is("cuStreamIsCapturing", d.cuStreamIsCapturing(LEGACY, &mut answer), CAPTURE_IMPLICIT);
            let code = d.cuStreamGetCaptureInfo_v2(0, &mut answer, &mut 0, &mut 0, null_mut(), null_mut());
            d.is("cuStreamGetCaptureInfo", code, CAPTURE_IMPLICIT);
            d.eq("the answer", answer, 7);
            d.eq("status", status(d, stream), 1);
            d.is("end", d.cuStreamEndCapture(stream, &mut 0), SUCCESS);
        }
    }),
    fact!("capture: uses of the legacy stream beside a blocking one that captures", |d| {
        let (stream, event) = (d.stream(0)?, d.event(NO_TIMING)?);
        let uses: [(&str, &dyn Fn() -> Code); 5] = [
            ("cuStreamQuery", &|| d.cuStreamQuery(0)),
            ("cuStreamSynchronize", &|| d.cuStreamSynchronize(0)),
            ("cuStreamGetId", &|| d.cuStreamGetId(0, &mut 0)),
            ("cuEventRecord", &|| d.cuEventRecord(event, 0)),
            ("cuStreamWaitEvent of none", &|| d.cuStreamWaitEvent(0, event, 0)),
        ];
        for mode in [GLOBAL, THREAD, RELAXED] {
            for (name, call) in uses {
                begin(d, stream, mode)?;
                d.is(name, call(), CAPTURE_IMPLICIT);
                invalidated(d, stream);
            }
        }
    }),
    fact!("capture: the legacy stream beside a blocking one that captures", |d| {
        let (stream, pointer) = (d.stream(0)?, d.alloc(4096)?);
        begin(d, stream, RELAXED)?;
        d.is("cuMemsetD8Async(0)", d.cuMemsetD8Async(pointer, 1, 16, 0), CAPTURE_IMPLICIT);
        invalidated(d, stream);
        begin(d, stream, RELAXED)?;
        d.is("cuMemsetD8", d.cuMemsetD8_v2(pointer, 1, 16), CAPTURE_IMPLICIT);
        invalidated(d, stream);
    }),
    fact!("capture: an invalidated capture refuses work", |d| {
        let (stream, pointer, event) = (d.stream(NON_BLOCKING)?, d.alloc(4096)?, d.event(NO_TIMING)?);
        begin(d, stream, RELAXED)?;
        d.is("cuStreamQuery", d.cuStreamQuery(stream), CAPTURE_UNSUPPORTED);
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 1, 16, stream), CAPTURE_INVALIDATED);
        d.is("cuEventRecord", d.cuEventRecord(event, stream), CAPTURE_INVALIDATED);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), CAPTURE_UNSUPPORTED);
        d.is("cuStreamBeginCapture", d.cuStreamBeginCapture_v2(stream, RELAXED), ILLEGAL_STATE);
        d.is("end", d.cuStreamEndCapture(stream, &mut 0), CAPTURE_INVALIDATED);
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 1, 16, stream), SUCCESS);
    }),
    fact!("capture: a stream is destroyed while it captures", |d| {
        let stream = d.stream(NON_BLOCKING)?;
        begin(d, stream, GLOBAL)?;
        d.is("cuStreamDestroy", d.cuStreamDestroy_v2(stream), SUCCESS);
        d.is("cuMemAlloc after it", d.cuMemAlloc_v2(&mut 0, 4096), SUCCESS);
    }),
    fact!("capture: callbacks and external events", |d| {
        extern "C" fn nothing(_: usize, _: i32, _: *mut c_void) {}
        let (stream, event) = (d.stream(NON_BLOCKING)?, d.event(NO_TIMING)?);
        begin(d, stream, RELAXED)?;
        d.is("callback", d.cuStreamAddCallback(stream, nothing, null_mut(), 0), CAPTURE_UNSUPPORTED);
        invalidated(d, stream);
        begin(d, stream, RELAXED)?;
        d.note("external record", d.cuEventRecordWithFlags(event, stream, 1));
        d.note("status", status(d, stream));
        d.note("end", d.cuStreamEndCapture(stream, &mut 0));
    }),
];
