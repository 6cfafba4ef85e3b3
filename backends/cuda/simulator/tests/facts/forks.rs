//! Captures of several streams: events, forks and joins.

use crate::capture::{RELAXED, begin, invalidated, status};
use crate::driver::{
    CAPTURE_INVALIDATED, CAPTURE_ISOLATION, CAPTURE_MERGE, CAPTURE_UNJOINED, CAPTURE_UNMATCHED,
    CAPTURED_EVENT, INVALID_VALUE, SUCCESS,
};
use crate::fact::{Fact, fact};
use crate::scene::{NO_TIMING, NON_BLOCKING};

pub(crate) const FACTS: &[Fact] = &[
    fact!("capture: a captured event outside of its capture", |d| {
        let (stream, event, other, outside) =
            (d.stream(NON_BLOCKING)?, d.event(NO_TIMING)?, d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?);
        begin(d, stream, RELAXED)?;
        d.is("record", d.cuEventRecord(event, stream), SUCCESS);
        d.is("query", d.cuEventQuery(event), CAPTURED_EVENT);
        d.eq("status after query", status(d, stream), 2);
        d.is("end", d.cuStreamEndCapture(stream, &mut 0), CAPTURE_INVALIDATED);
        begin(d, stream, RELAXED)?;
        d.is("record", d.cuEventRecord(other, stream), SUCCESS);
        d.is("synchronise", d.cuEventSynchronize(other), CAPTURED_EVENT);
        d.is("end", d.cuStreamEndCapture(stream, &mut 0), CAPTURE_INVALIDATED);
        begin(d, stream, RELAXED)?;
        d.is("record", d.cuEventRecord(other, stream), SUCCESS);
        d.is("end", d.cuStreamEndCapture(stream, &mut 0), SUCCESS);
        d.is("query after the end", d.cuEventQuery(other), INVALID_VALUE);
        d.is("wait after the end", d.cuStreamWaitEvent(outside, other, 0), INVALID_VALUE);
        d.is("elapsed after the end", d.cuEventElapsedTime(&mut 0.0, other, other), INVALID_VALUE);
        d.is("record again", d.cuEventRecord(other, outside), SUCCESS);
        d.is("query", d.cuEventSynchronize(other), SUCCESS);
    }),
    fact!("capture: waiting for work outside of the capture", |d| {
        let (stream, event, fresh, outside) =
            (d.stream(NON_BLOCKING)?, d.event(NO_TIMING)?, d.event(NO_TIMING)?, d.stream(NON_BLOCKING)?);
        d.is("record", d.cuEventRecord(event, outside), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(outside), SUCCESS);
        begin(d, stream, RELAXED)?;
        d.is("wait for an event never recorded", d.cuStreamWaitEvent(stream, fresh, 0), SUCCESS);
        d.eq("status", status(d, stream), 1);
        d.is("end", d.cuStreamEndCapture(stream, &mut 0), SUCCESS);
        begin(d, stream, RELAXED)?;
        d.is("wait for a complete event", d.cuStreamWaitEvent(stream, event, 0), CAPTURE_ISOLATION);
        invalidated(d, stream);
    }),
    fact!("capture: ending in a forked stream", |d| {
        let (stream, forked, event, pointer) =
            (d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?, d.event(NO_TIMING)?, d.alloc(4096)?);
        begin(d, stream, RELAXED)?;
        d.fork(event, stream, forked);
        d.eq("status of the forked one", status(d, forked), 1);
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 1, 16, forked), SUCCESS);
        d.is("end in the forked one", d.cuStreamEndCapture(forked, &mut 0), CAPTURE_UNMATCHED);
        invalidated(d, stream);
        d.eq("status after", status(d, stream), 0);
        d.eq("status of the forked one after", status(d, forked), 0);
    }),
    fact!("capture: ending with a fork that was not joined", |d| {
        let (stream, forked, event, pointer) =
            (d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?, d.event(NO_TIMING)?, d.alloc(4096)?);
        begin(d, stream, RELAXED)?;
        d.fork(event, stream, forked);
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 1, 16, forked), SUCCESS);
        d.is("end", d.cuStreamEndCapture(stream, &mut 0), CAPTURE_UNJOINED);
        d.eq("status after", status(d, stream), 0);
        d.eq("status of the forked one after", status(d, forked), 0);
    }),
    fact!("capture: a fork without work of its own", |d| {
        let (stream, forked, event) = (d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?, d.event(NO_TIMING)?);
        begin(d, stream, RELAXED)?;
        d.fork(event, stream, forked);
        d.is("end", d.cuStreamEndCapture(stream, &mut 0), SUCCESS);
    }),
    fact!("capture: two captures do not merge", |d| {
        let (first, second, event) = (d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?, d.event(NO_TIMING)?);
        begin(d, first, RELAXED)?;
        begin(d, second, RELAXED)?;
        d.is("record", d.cuEventRecord(event, first), SUCCESS);
        d.is("wait", d.cuStreamWaitEvent(second, event, 0), CAPTURE_MERGE);
        d.eq("status of the first", status(d, first), 2);
        d.eq("status of the second", status(d, second), 2);
        d.is("end of the first", d.cuStreamEndCapture(first, &mut 0), CAPTURE_INVALIDATED);
        d.is("end of the second", d.cuStreamEndCapture(second, &mut 0), CAPTURE_INVALIDATED);
    }),
];
