//! Streams: default streams, identities, priorities, order.

use crate::driver::{Code, INVALID_HANDLE, INVALID_VALUE, NOT_PERMITTED, SUCCESS};
use crate::fact::{Fact, Scene, fact};
use crate::scene::{LEGACY, NON_BLOCKING, PER_THREAD};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;

fn id(d: &Scene, stream: usize) -> u64 {
    let mut id = 0;
    d.is("cuStreamGetId", d.cuStreamGetId(stream, &mut id), SUCCESS);
    id
}

static ORDER: Mutex<Vec<i32>> = Mutex::new(Vec::new());

extern "C" fn note_order(data: *mut c_void) {
    ORDER.lock().unwrap().push(data as usize as i32);
}

extern "C" fn note_callback(_: usize, status: i32, data: *mut c_void) {
    ORDER.lock().unwrap().push(data as usize as i32 + status);
}

extern "C" fn call_driver(data: *mut c_void) {
    // SAFETY: the scene outlives the stream's work, which the fact waits for.
    let d = unsafe { &*data.cast::<Scene>() };
    let mut pointer = 0;
    let results = [d.cuMemAlloc_v2(&mut pointer, 4096), d.cuStreamQuery(0), d.cuEventCreate(&mut 0, 0)];
    ORDER.lock().unwrap().extend(results.map(|code| code.0));
}

pub(crate) const FACTS: &[Fact] = &[
    fact!("streams: three handles exist without being created", |d| {
        for stream in [0, LEGACY, PER_THREAD] {
            d.is(&format!("cuStreamQuery({stream})"), d.cuStreamQuery(stream), SUCCESS);
            d.is(&format!("cuStreamSynchronize({stream})"), d.cuStreamSynchronize(stream), SUCCESS);
            let mut context = 0;
            d.is(&format!("cuStreamGetCtx({stream})"), d.cuStreamGetCtx(stream, &mut context), SUCCESS);
            d.eq("context", context == d.context, true);
            let (mut flags, mut priority) = (9, 9);
            d.is("cuStreamGetFlags", d.cuStreamGetFlags(stream, &mut flags), SUCCESS);
            d.eq("flags", flags, 0);
            d.is("cuStreamGetPriority", d.cuStreamGetPriority(stream, &mut priority), SUCCESS);
            d.eq("priority", priority, 0);
        }
        d.eq("0 is the legacy stream", id(d, 0) == id(d, LEGACY), true);
        d.eq("2 is another", id(d, 0) != id(d, PER_THREAD), true);
    }),
    fact!("streams: the default streams cannot be destroyed", |d| {
        d.is("cuStreamDestroy(0)", d.cuStreamDestroy_v2(0), INVALID_HANDLE);
        d.is("cuStreamDestroy(1)", d.cuStreamDestroy_v2(LEGACY), INVALID_HANDLE);
        d.is("cuStreamDestroy(2)", d.cuStreamDestroy_v2(PER_THREAD), INVALID_HANDLE);
        d.is("cuStreamQuery(2)", d.cuStreamQuery(PER_THREAD), SUCCESS);
    }),
    fact!("streams: each thread has its own default stream", |d| {
        let here = id(d, PER_THREAD);
        let (there, legacy) = d.elsewhere(|| (id(d, PER_THREAD), id(d, LEGACY)));
        d.eq("per thread", here != there, true);
        d.eq("legacy", legacy == id(d, LEGACY), true);
        d.eq("again", here == id(d, PER_THREAD), true);
    }),
    fact!("streams: identities are not reused", |d| {
        let mut seen = Vec::new();
        for _ in 0..50 {
            let stream = d.stream(NON_BLOCKING)?;
            let id = id(d, stream);
            d.eq("new", !seen.contains(&id), true);
            seen.push(id);
            d.is("cuStreamDestroy", d.cuStreamDestroy_v2(stream), SUCCESS);
        }
        d.note("first", seen[0]);
        d.note("last", seen[49]);
        d.is("null", d.cuStreamGetId(0, null_mut()), INVALID_VALUE);
    }),
    fact!("streams: flags and null results", |d| {
        let mut stream = 0;
        d.is("flags 8", d.cuStreamCreate(&mut stream, 8), INVALID_VALUE);
        d.is("null", d.cuStreamCreate(null_mut(), 0), INVALID_VALUE);
        let stream = d.stream(NON_BLOCKING)?;
        let mut flags = 9;
        d.is("cuStreamGetFlags", d.cuStreamGetFlags(stream, &mut flags), SUCCESS);
        d.eq("flags", flags, NON_BLOCKING);
        d.is("cuStreamGetCtx(null)", d.cuStreamGetCtx(stream, null_mut()), INVALID_VALUE);
    }),
    fact!("streams: priorities are clamped to the range", |d| {
        let (mut least, mut greatest) = (9, 9);
        d.is("range", d.cuCtxGetStreamPriorityRange(&mut least, &mut greatest), SUCCESS);
        d.eq("least", least, 0);
        d.note("greatest", greatest);
        d.eq("greatest is below", greatest < 0, true);
        for (asked, expected) in [(100, least), (-100, greatest), (-1, -1), (greatest, greatest)] {
            let (mut stream, mut priority) = (0, 9);
            d.is("create", d.cuStreamCreateWithPriority(&mut stream, 1, asked), SUCCESS);
            d.is("priority", d.cuStreamGetPriority(stream, &mut priority), SUCCESS);
            d.eq(&format!("priority, {asked} asked"), priority, expected);
        }
    }),
    fact!("streams: a held stream is not ready, and then complete", |d| {
        let (stream, other, pointer) = (d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?, d.alloc(4096)?);
        let gate = d.gate(stream)?;
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 7, 4096, stream), SUCCESS);
        d.eq("busy", d.busy(stream), true);
        d.is("the other", d.cuStreamQuery(other), SUCCESS);
        d.finish(gate, stream);
        d.is("cuStreamQuery", d.cuStreamQuery(stream), SUCCESS);
        d.eq("word", d.word(pointer)?, 0x0707_0707);
    }),
    fact!("streams: blocking streams wait for the legacy stream", |d| {
        let (blocking, free) = (d.stream(0)?, d.stream(NON_BLOCKING)?);
        let pointer = d.alloc(4096)?;
        let gate = d.gate(0)?;
        for (stream, name, expected) in
            [(blocking, "blocking", true), (free, "non-blocking", false), (PER_THREAD, "per thread", true)]
        {
            d.is(name, d.cuMemsetD8Async(pointer, 7, 16, stream), SUCCESS);
            if !expected {
                d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
                d.eq("the gate is closed still", gate.passed(), false);
            }
            d.eq(name, d.busy(stream), expected);
        }
        d.eq("legacy", d.busy(LEGACY), true);
        d.finish_all(gate);
    }),
    fact!("streams: the legacy stream waits for blocking streams", |d| {
        let (blocking, free) = (d.stream(0)?, d.stream(NON_BLOCKING)?);
        let pointer = d.alloc(4096)?;
        let gate = d.gate(free)?;
        d.is("legacy beside a held non-blocking one", d.cuMemsetD8Async(pointer, 7, 16, 0), SUCCESS);
        d.is("cuStreamSynchronize(0)", d.cuStreamSynchronize(0), SUCCESS);
        d.eq("the gate is closed still", gate.passed(), false);
        d.finish_all(gate);
        let gate = d.gate(blocking)?;
        d.eq("legacy is busy before it has work", d.busy(0), true);
        d.is("legacy beside a held blocking one", d.cuMemsetD8Async(pointer, 7, 16, 0), SUCCESS);
        d.eq("legacy is busy", d.busy(0), true);
        d.finish_all(gate);
        d.is("legacy", d.cuStreamQuery(0), SUCCESS);
    }),
    fact!("streams: a stream with pending work may be destroyed", |d| {
        let (stream, pointer) = (d.stream(NON_BLOCKING)?, d.alloc(4096)?);
        let gate = d.gate(stream)?;
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 7, 4096, stream), SUCCESS);
        d.is("cuStreamDestroy", d.cuStreamDestroy_v2(stream), SUCCESS);
        d.eq("it does not wait", gate.passed(), false);
        d.finish_all(gate);
        d.eq("word", d.word(pointer)?, 0x0707_0707);
    }),
    fact!("streams: the handle of a destroyed stream", |d| {
        let stream = d.stream(NON_BLOCKING)?;
        d.is("cuStreamDestroy", d.cuStreamDestroy_v2(stream), SUCCESS);
        d.is("cuStreamQuery", d.cuStreamQuery(stream), INVALID_HANDLE);
        d.is("cuStreamDestroy", d.cuStreamDestroy_v2(stream), INVALID_HANDLE);
    })
    .simulator_only(),
    fact!("streams: host functions run in order", |d| {
        let stream = d.stream(NON_BLOCKING)?;
        for value in 1..=20_usize {
            d.is("cuLaunchHostFunc", d.cuLaunchHostFunc(stream, note_order, value as *mut c_void), SUCCESS);
        }
        d.is("callback", d.cuStreamAddCallback(stream, note_callback, 21 as *mut c_void, 0), SUCCESS);
        d.is(
            "callback with flags",
            d.cuStreamAddCallback(stream, note_callback, null_mut(), 1),
            INVALID_VALUE,
        );
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
        d.eq("order", *ORDER.lock().unwrap() == (1..=21).collect::<Vec<_>>(), true);
    }),
    fact!("streams: a host function may not call the driver", |d| {
        let stream = d.stream(NON_BLOCKING)?;
        let data = (&raw const *d).cast_mut().cast();
        d.is("cuLaunchHostFunc", d.cuLaunchHostFunc(stream, call_driver, data), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
        for (call, code) in
            ["cuMemAlloc", "cuStreamQuery", "cuEventCreate"].iter().zip(ORDER.lock().unwrap().iter())
        {
            d.is(call, Code(*code), NOT_PERMITTED);
        }
    }),
    fact!("streams: use while another context is current", |d| {
        let (stream, pointer) = (d.stream(NON_BLOCKING)?, d.alloc(4096)?);
        let other = d.other_context()?;
        let mut context = 0;
        d.is("cuStreamGetCtx", d.cuStreamGetCtx(stream, &mut context), SUCCESS);
        d.eq("its own", context == d.context, true);
        d.is("cuStreamGetCtx(0)", d.cuStreamGetCtx(0, &mut context), SUCCESS);
        d.eq("the current one", context == other, true);
        d.is("cuStreamQuery", d.cuStreamQuery(stream), SUCCESS);
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 1, 16, stream), SUCCESS);
        d.is("cuMemcpyAsync", d.cuMemcpyAsync(pointer, pointer + 2048, 16, stream), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
        d.is("cuStreamDestroy", d.cuStreamDestroy_v2(stream), SUCCESS);
    }),
    fact!("streams: a context's synchronisation waits for all of its own", |d| {
        let (stream, pointer) = (d.stream(NON_BLOCKING)?, d.alloc(4096)?);
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 1, 16, stream), SUCCESS);
        d.waits("cuCtxSynchronize", stream, true, || d.cuCtxSynchronize())?;
        d.waits("cuStreamSynchronize of another", stream, false, || d.cuStreamSynchronize(0))?;
        d.other_context()?;
        let gate = d.gate(stream)?;
        d.is("cuCtxSynchronize of another context", d.cuCtxSynchronize(), SUCCESS);
        d.eq("waits", gate.passed(), false);
        d.finish(gate, stream);
    }),
];
