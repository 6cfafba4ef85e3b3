//! Graphs: launches, order, and memory of their own.

use crate::driver::{ILLEGAL_ADDRESS, ILLEGAL_STATE, INVALID_VALUE, SUCCESS};
use crate::fact::{Fact, Scene, Stop, fact};
use crate::scene::{MIB, NO_TIMING, NON_BLOCKING};
use std::ptr::null_mut;

/// Captures work of a stream and instantiates the graph.
fn program(d: &Scene, flags: u64, record: impl FnOnce(usize) -> Result<(), Stop>) -> Result<usize, Stop> {
    let (stream, mut graph, mut program) = (d.stream(NON_BLOCKING)?, 0, 0);
    d.must("begin", d.cuStreamBeginCapture_v2(stream, 2))?;
    record(stream)?;
    d.must("end", d.cuStreamEndCapture(stream, &mut graph))?;
    d.must("instantiate", d.cuGraphInstantiateWithFlags(&mut program, graph, flags))?;
    d.is("cuGraphDestroy", d.cuGraphDestroy(graph), SUCCESS);
    Ok(program)
}

fn run(d: &Scene, program: usize, stream: usize) {
    d.is("cuGraphLaunch", d.cuGraphLaunch(program, stream), SUCCESS);
    d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
}

pub(crate) const FACTS: &[Fact] = &[
    fact!("graphs: each launch does the work again", |d| {
        let (pointer, stream) = (d.alloc(4096)?, d.stream(NON_BLOCKING)?);
        let program = program(d, 0, |inside| d.must("memset", d.cuMemsetD8Async(pointer, 7, 4096, inside)))?;
        for _ in 0..3 {
            d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 1, 4096, stream), SUCCESS);
            run(d, program, stream);
            d.eq("word", d.word(pointer)?, 0x0707_0707);
        }
        d.is("cuGraphExecDestroy", d.cuGraphExecDestroy(program), SUCCESS);
    }),
    fact!("graphs: an empty graph", |d| {
        let (stream, mut graph) = (d.stream(NON_BLOCKING)?, 0);
        let program = program(d, 0, |_| Ok(()))?;
        d.is("cuGraphLaunch", d.cuGraphLaunch(program, stream), SUCCESS);
        d.is("in the legacy stream", d.cuGraphLaunch(program, 0), SUCCESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        d.is("cuGraphCreate(1)", d.cuGraphCreate(&mut graph, 1), INVALID_VALUE);
        d.is("cuGraphCreate", d.cuGraphCreate(&mut graph, 0), SUCCESS);
        d.is("cuGraphLaunch(null)", d.cuGraphLaunch(0, stream), INVALID_VALUE);
        d.is("cuGraphDestroy(null)", d.cuGraphDestroy(0), INVALID_VALUE);
        d.is("cuGraphExecDestroy(null)", d.cuGraphExecDestroy(0), INVALID_VALUE);
        d.is("cuGraphInstantiate(null)", d.cuGraphInstantiateWithFlags(&mut 0, 0, 0), INVALID_VALUE);
    }),
    fact!("graphs: launches run in their stream's order", |d| {
        let (pointer, stream) = (d.alloc(4096)?, d.stream(NON_BLOCKING)?);
        let program = program(d, 0, |inside| d.must("memset", d.cuMemsetD8Async(pointer, 7, 4096, inside)))?;
        let gate = d.gate(stream)?;
        d.is("cuGraphLaunch", d.cuGraphLaunch(program, stream), SUCCESS);
        d.is("again, while the first is pending", d.cuGraphLaunch(program, stream), SUCCESS);
        d.eq("neither waits", gate.passed(), false);
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 9, 4096, stream), SUCCESS);
        d.finish(gate, stream);
        d.eq("word", d.word(pointer)?, 0x0909_0909);
    }),
    fact!("graphs: launches of one program run one after the other on any stream", |d| {
        let (first, second, third) =
            (d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?);
        let pointer = d.alloc(4096)?;
        let memset = |inside| d.must("memset", d.cuMemsetD8Async(pointer, 7, 4096, inside));
        let (one, other) = (program(d, 0, memset)?, program(d, 0, |_| Ok(()))?);
        let gate = d.gate(first)?;
        d.is("cuGraphLaunch", d.cuGraphLaunch(one, first), SUCCESS);
        d.is("of another program", d.cuGraphLaunch(other, second), SUCCESS);
        d.is("cuStreamSynchronize beside it", d.cuStreamSynchronize(second), SUCCESS);
        d.is("again, on another stream", d.cuGraphLaunch(one, second), SUCCESS);
        d.is("cuGraphUpload", d.cuGraphUpload(one, third), SUCCESS);
        std::thread::sleep(std::time::Duration::from_millis(100));
        d.eq("the second launch waits", d.busy(second), true);
        d.eq("the upload waits", d.busy(third), true);
        d.eq("no call waits", gate.passed(), false);
        d.finish_all(gate);
    }),
    fact!("graphs: a copy from memory that was freed", |d| {
        // Large: of small memory a real driver keeps the page, and the copy succeeds. Observed on an H100.
        const BYTES: usize = 64 << 20;
        let (from, to, stream) = (d.alloc(BYTES)?, d.alloc(BYTES)?, d.stream(NON_BLOCKING)?);
        let program = program(d, 0, |inside| d.must("copy", d.cuMemcpyAsync(to, from, BYTES, inside)))?;
        run(d, program, stream);
        d.must("cuMemFree", d.cuMemFree_v2(from))?;
        d.is("cuGraphLaunch after it", d.cuGraphLaunch(program, stream), SUCCESS);
        d.is("cuStreamSynchronize after it", d.cuStreamSynchronize(stream), ILLEGAL_ADDRESS);
    }),
    fact!("graphs: a program is destroyed while a launch is pending", |d| {
        let (pointer, stream) = (d.alloc(4096)?, d.stream(NON_BLOCKING)?);
        let program = program(d, 0, |inside| d.must("memset", d.cuMemsetD8Async(pointer, 7, 4096, inside)))?;
        let gate = d.gate(stream)?;
        d.is("cuGraphLaunch", d.cuGraphLaunch(program, stream), SUCCESS);
        d.is("cuGraphExecDestroy", d.cuGraphExecDestroy(program), SUCCESS);
        d.eq("it does not wait", gate.passed(), false);
        d.finish(gate, stream);
        d.eq("word", d.word(pointer)?, 0x0707_0707);
    }),
    fact!("graphs: forks and joins keep their order", |d| {
        let (pointer, stream, forked) = (d.alloc(4096)?, d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?);
        let (out, back) = (d.event(NO_TIMING)?, d.event(NO_TIMING)?);
        let program = program(d, 0, |inside| {
            d.must("memset", d.cuMemsetD8Async(pointer, 1, 64, inside))?;
            d.must("record", d.cuEventRecord(out, inside))?;
            d.must("wait", d.cuStreamWaitEvent(forked, out, 0))?;
            d.must("copy", d.cuMemcpyAsync(pointer + 64, pointer, 64, forked))?;
            d.must("record", d.cuEventRecord(back, forked))?;
            d.must("wait", d.cuStreamWaitEvent(inside, back, 0))?;
            d.must("memset", d.cuMemsetD8Async(pointer, 2, 64, inside))
        })?;
        run(d, program, stream);
        d.eq("first", d.word(pointer)?, 0x0202_0202);
        d.eq("copy", d.word(pointer + 64)?, 0x0101_0101);
    }),
    fact!("graphs: a kernel's parameters are those of its capture", |d| {
        let (kernel, pointer, stream) =
            (d.kernel(c"write_pattern")?, d.alloc(4096)?, d.stream(NON_BLOCKING)?);
        d.must("launch", d.launch(kernel, stream, &mut [pointer, 64, 5]))?;
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
        let expected = d.word(pointer)?;
        let program = program(d, 0, |inside| {
            let mut parameters = [pointer, 64, 5];
            d.must("launch", d.launch(kernel, inside, &mut parameters))?;
            parameters.fill(0);
            Ok(())
        })?;
        d.is("cuMemsetD8", d.cuMemsetD8_v2(pointer, 0, 64), SUCCESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        run(d, program, stream);
        d.eq("word", d.word(pointer)?, expected);
    }),
    fact!("graphs: memory that a capture allocates", |d| {
        let (stream, mut inner) = (d.stream(NON_BLOCKING)?, 0);
        let program = program(d, 1, |inside| {
            d.must("cuMemAllocAsync", d.cuMemAllocAsync(&mut inner, MIB, inside))?;
            d.must("memset", d.cuMemsetD8Async(inner, 3, MIB, inside))
        })?;
        d.eq("an address", inner != 0, true);
        d.is("launch", d.cuGraphLaunch(program, stream), SUCCESS);
        d.is("launch again, which releases first", d.cuGraphLaunch(program, stream), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
        d.eq("word", d.word(inner)?, 0x0303_0303);
        d.free(inner, stream);
    }),
    fact!("graphs: memory that a capture allocates and does not release", |d| {
        let (stream, mut inner) = (d.stream(NON_BLOCKING)?, 0);
        let program =
            program(d, 0, |inside| d.must("cuMemAllocAsync", d.cuMemAllocAsync(&mut inner, MIB, inside)))?;
        d.is("launch", d.cuGraphLaunch(program, stream), SUCCESS);
        d.is("launch again", d.cuGraphLaunch(program, stream), INVALID_VALUE);
        d.is("cuMemFreeAsync", d.cuMemFreeAsync(inner, stream), SUCCESS);
        d.is("launch after the release", d.cuGraphLaunch(program, stream), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
    }),
    fact!("graphs: a capture's dependencies may be set", |d| {
        let (stream, pointer) = (d.stream(NON_BLOCKING)?, d.alloc(4096)?);
        d.is("outside", d.cuStreamUpdateCaptureDependencies(stream, null_mut(), 0, 1), ILLEGAL_STATE);
        d.must("begin", d.cuStreamBeginCapture_v2(stream, 2))?;
        d.must("memset", d.cuMemsetD8Async(pointer, 3, 16, stream))?;
        d.is("set to none", d.cuStreamUpdateCaptureDependencies(stream, null_mut(), 0, 1), SUCCESS);
        d.is("flags 9", d.cuStreamUpdateCaptureDependencies(stream, null_mut(), 0, 9), INVALID_VALUE);
        d.is("end", d.cuStreamEndCapture(stream, &mut 0), SUCCESS);
    }),
];
