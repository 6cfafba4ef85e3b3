//! Events: records, waits, elapsed time.

use crate::driver::{ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, NOT_READY, SUCCESS};
use crate::fact::{Fact, fact};
use crate::scene::{NO_TIMING, NON_BLOCKING};
use std::ptr::null_mut;

pub(crate) const FACTS: &[Fact] = &[
    fact!("events: an event that was never recorded is complete", |d| {
        let (event, stream) = (d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?);
        d.is("cuEventQuery", d.cuEventQuery(event), SUCCESS);
        d.is("cuEventSynchronize", d.cuEventSynchronize(event), SUCCESS);
        d.is("cuStreamWaitEvent", d.cuStreamWaitEvent(stream, event, 0), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
        d.is("cuEventDestroy", d.cuEventDestroy_v2(event), SUCCESS);
    }),
    fact!("events: flags and null handles", |d| {
        let mut event = 0;
        d.is("flags 16", d.cuEventCreate(&mut event, 16), INVALID_VALUE);
        d.is("between processes with timing", d.cuEventCreate(&mut event, 4), INVALID_VALUE);
        d.is("between processes without timing", d.cuEventCreate(&mut event, 6), SUCCESS);
        d.is("null result", d.cuEventCreate(null_mut(), 0), INVALID_VALUE);
        d.is("cuEventQuery(null)", d.cuEventQuery(0), INVALID_HANDLE);
        d.is("cuEventRecord(null)", d.cuEventRecord(0, 0), INVALID_HANDLE);
        d.is("cuEventSynchronize(null)", d.cuEventSynchronize(0), INVALID_HANDLE);
        d.is("cuEventDestroy(null)", d.cuEventDestroy_v2(0), INVALID_HANDLE);
        d.is("cuStreamWaitEvent(null)", d.cuStreamWaitEvent(0, 0, 0), INVALID_HANDLE);
    }),
    fact!("events: completion means that the work before the record is complete", |d| {
        let (event, stream) = (d.event(0)?, d.stream(NON_BLOCKING)?);
        let gate = d.gate(stream)?;
        d.is("cuEventRecord", d.cuEventRecord(event, stream), SUCCESS);
        let later = d.gate(stream)?;
        d.is("cuEventQuery", d.cuEventQuery(event), NOT_READY);
        gate.open();
        d.is("cuEventSynchronize", d.cuEventSynchronize(event), SUCCESS);
        d.is("cuEventQuery", d.cuEventQuery(event), SUCCESS);
        d.eq("work after it is pending", d.busy(stream), true);
        d.finish(later, stream);
    }),
    fact!("events: recording again replaces the last record", |d| {
        let (event, stream) = (d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?);
        d.is("cuEventRecord", d.cuEventRecord(event, stream), SUCCESS);
        d.is("cuEventSynchronize", d.cuEventSynchronize(event), SUCCESS);
        let gate = d.gate(stream)?;
        d.is("cuEventQuery", d.cuEventQuery(event), SUCCESS);
        d.is("cuEventRecord", d.cuEventRecord(event, stream), SUCCESS);
        d.is("cuEventQuery", d.cuEventQuery(event), NOT_READY);
        let idle = d.stream(NON_BLOCKING)?;
        d.is("cuEventRecord in an idle stream", d.cuEventRecord(event, idle), SUCCESS);
        d.is("cuEventSynchronize", d.cuEventSynchronize(event), SUCCESS);
        d.eq("the first stream is busy", d.busy(stream), true);
        d.finish_all(gate);
    }),
    fact!("events: a wait is for the last record before it", |d| {
        let (event, held, waiting) = (d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?);
        d.is("record in an idle stream", d.cuEventRecord(event, held), SUCCESS);
        d.is("wait", d.cuStreamWaitEvent(waiting, event, 0), SUCCESS);
        let gate = d.gate(held)?;
        d.is("record after the wait", d.cuEventRecord(event, held), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(waiting), SUCCESS);
        d.eq("the gate is closed still", gate.passed(), false);
        d.is("wait", d.cuStreamWaitEvent(waiting, event, 0), SUCCESS);
        d.eq("the stream waits", d.busy(waiting), true);
        d.is("record in an idle stream", d.cuEventRecord(event, d.stream(NON_BLOCKING)?), SUCCESS);
        d.is("cuEventSynchronize", d.cuEventSynchronize(event), SUCCESS);
        d.eq("the stream waits for the older record", d.busy(waiting), true);
        d.finish_all(gate);
    }),
    fact!("events: an event may be destroyed while a stream waits for it", |d| {
        let (event, held, waiting) = (d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?);
        let gate = d.gate(held)?;
        d.is("cuEventRecord", d.cuEventRecord(event, held), SUCCESS);
        d.is("cuStreamWaitEvent", d.cuStreamWaitEvent(waiting, event, 0), SUCCESS);
        d.is("cuEventDestroy", d.cuEventDestroy_v2(event), SUCCESS);
        d.eq("the gate is closed still", gate.passed(), false);
        d.eq("the stream waits", d.busy(waiting), true);
        d.finish(gate, waiting);
    }),
    fact!("events: the handle of a destroyed event", |d| {
        let event = d.event(NO_TIMING)?;
        d.is("cuEventDestroy", d.cuEventDestroy_v2(event), SUCCESS);
        d.is("cuEventQuery", d.cuEventQuery(event), INVALID_HANDLE);
        d.is("cuEventDestroy", d.cuEventDestroy_v2(event), INVALID_HANDLE);
    })
    .simulator_only(),
    fact!("events: elapsed time", |d| {
        let (first, second, plain, stream) =
            (d.event(0)?, d.event(0)?, d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?);
        let mut time = -1.0;
        d.is("never recorded", d.cuEventElapsedTime(&mut time, first, second), INVALID_HANDLE);
        d.is("record", d.cuEventRecord(first, stream), SUCCESS);
        d.is("one recorded", d.cuEventElapsedTime(&mut time, first, second), INVALID_HANDLE);
        let gate = d.gate(stream)?;
        d.is("record", d.cuEventRecord(second, stream), SUCCESS);
        d.is("record", d.cuEventRecord(plain, stream), SUCCESS);
        d.is("pending", d.cuEventElapsedTime(&mut time, first, second), NOT_READY);
        d.finish(gate, stream);
        d.is("complete", d.cuEventElapsedTime(&mut time, first, second), SUCCESS);
        d.eq("not negative", time >= 0.0, true);
        d.is("backwards", d.cuEventElapsedTime(&mut time, second, first), SUCCESS);
        d.eq("not positive", time <= 0.0, true);
        d.is("the same event", d.cuEventElapsedTime(&mut time, first, first), SUCCESS);
        d.is("without timing", d.cuEventElapsedTime(&mut time, first, plain), INVALID_HANDLE);
        d.is("null", d.cuEventElapsedTime(null_mut(), first, second), INVALID_HANDLE);
    }),
    fact!("events: an event is recorded only in streams of its context", |d| {
        let (event, stream) = (d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?);
        d.other_context()?;
        let other = d.stream(NON_BLOCKING)?;
        d.is("record in another context's stream", d.cuEventRecord(event, other), INVALID_HANDLE);
        d.is("record in the legacy stream of another context", d.cuEventRecord(event, 0), INVALID_HANDLE);
        d.is("record in its context's stream", d.cuEventRecord(event, stream), SUCCESS);
        d.is("wait in another context's stream", d.cuStreamWaitEvent(other, event, 0), SUCCESS);
        d.is("query", d.cuEventSynchronize(event), SUCCESS);
        d.is("destroy", d.cuEventDestroy_v2(event), SUCCESS);
    }),
    fact!("events: waits cross contexts", |d| {
        let (event, stream) = (d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?);
        let gate = d.gate(stream)?;
        d.is("record", d.cuEventRecord(event, stream), SUCCESS);
        d.other_context()?;
        let other = d.stream(NON_BLOCKING)?;
        d.is("wait", d.cuStreamWaitEvent(other, event, 0), SUCCESS);
        d.eq("busy", d.busy(other), true);
        d.finish(gate, other);
    }),
    fact!("events: flags of a record and a wait", |d| {
        let (event, stream) = (d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?);
        d.is("record with no flags", d.cuEventRecordWithFlags(event, stream, 0), SUCCESS);
        d.is("external record outside", d.cuEventRecordWithFlags(event, stream, 1), ILLEGAL_STATE);
        d.is("record with flags 8", d.cuEventRecordWithFlags(event, stream, 8), INVALID_VALUE);
        d.is("external wait outside of a capture", d.cuStreamWaitEvent(stream, event, 1), ILLEGAL_STATE);
        d.is("wait with flags 8", d.cuStreamWaitEvent(stream, event, 8), INVALID_VALUE);
    }),
    fact!("events: a stream of one device waits for an event of another", |d| {
        let (event, stream) = (d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?);
        let gate = d.gate(stream)?;
        d.is("record", d.cuEventRecord(event, stream), SUCCESS);
        let other = d.second_device()?;
        d.must("cuCtxSetCurrent", d.cuCtxSetCurrent(other))?;
        let there = d.stream(NON_BLOCKING)?;
        d.is("wait", d.cuStreamWaitEvent(there, event, 0), SUCCESS);
        d.eq("busy", d.busy(there), true);
        d.is("record in another device's stream", d.cuEventRecord(event, there), INVALID_HANDLE);
        d.finish(gate, there);
    })
    .two_devices(),
];
