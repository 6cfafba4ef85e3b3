//! Modules, kernels, and the state of a context after a kernel's fault.

use crate::driver::{
    Access, ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NOT_FOUND, SUCCESS,
};
use crate::fact::{Check, Fact, Scene, fact, named};
use crate::scene::{MIB, NO_TIMING, NON_BLOCKING, read_write};
use std::ptr::null_mut;

/// Checks the result of each call after a context is lost.
fn lost(d: &Scene, pointer: u64, stream: usize, event: usize) -> Check {
    let mut out = 0;
    d.is("cuCtxSynchronize", d.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    d.is("cuCtxSynchronize again", d.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), ILLEGAL_ADDRESS);
    d.is("cuStreamQuery", d.cuStreamQuery(stream), ILLEGAL_ADDRESS);
    d.is("cuMemAlloc", d.cuMemAlloc_v2(&mut out, 4096), ILLEGAL_ADDRESS);
    d.is("cuMemHostAlloc", d.cuMemHostAlloc(&mut out, 4096, 0), ILLEGAL_ADDRESS);
    d.is("cuMemFree", d.cuMemFree_v2(pointer), ILLEGAL_ADDRESS);
    d.is("cuMemsetD8", d.cuMemsetD8_v2(pointer, 0, 16), ILLEGAL_ADDRESS);
    d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 0, 16, stream), ILLEGAL_ADDRESS);
    d.is("cuEventRecord", d.cuEventRecord(event, stream), ILLEGAL_ADDRESS);
    d.is("cuEventQuery", d.cuEventQuery(event), ILLEGAL_ADDRESS);
    d.is("cuStreamWaitEvent", d.cuStreamWaitEvent(stream, event, 0), ILLEGAL_ADDRESS);
    d.is("cuStreamCreate", d.cuStreamCreate(&mut 0, 1), ILLEGAL_ADDRESS);
    d.is("cuEventCreate", d.cuEventCreate(&mut 0, 2), ILLEGAL_ADDRESS);
    d.is("cuMemGetInfo", d.cuMemGetInfo_v2(&mut 0, &mut 0), ILLEGAL_ADDRESS);
    d.is("cuMemAddressReserve", d.cuMemAddressReserve(&mut out, 2 * MIB, 0, 0, 0), SUCCESS);
    d.is("cuMemCreate", d.cuMemCreate(&mut out, 2 * MIB, &crate::scene::physical(0), 0), SUCCESS);
    d.is("cuEventDestroy", d.cuEventDestroy_v2(event), ILLEGAL_ADDRESS);
    d.is("cuStreamDestroy", d.cuStreamDestroy_v2(stream), ILLEGAL_ADDRESS);
    d.is("cuCtxGetCurrent", d.cuCtxGetCurrent(&mut 0), SUCCESS);
    d.is("cuDeviceGetAttribute", d.cuDeviceGetAttribute(&mut 0, 10, 0), SUCCESS);
    let mut pool = 0;
    d.is("cuDeviceGetDefaultMemPool", d.cuDeviceGetDefaultMemPool(&mut pool, 0), SUCCESS);
    d.is("cuMemPoolTrimTo(default)", d.cuMemPoolTrimTo(pool, 0), SUCCESS);
    Ok(())
}

pub(crate) const FACTS: &[Fact] = &[
    fact!("modules: invalid images", |d| {
        let mut module = 0;
        d.is("text", d.cuModuleLoadData(&mut module, c"garbage".as_ptr()), INVALID_IMAGE);
        d.is("nothing", d.cuModuleLoadData(&mut module, c"".as_ptr()), INVALID_IMAGE);
        let broken =
            c".version 7.0\n.target sm_60\n.address_size 64\n.visible .entry broken() { nonsense; }\n";
        d.is("PTX with an error", d.cuModuleLoadData(&mut module, broken.as_ptr()), INVALID_PTX);
        d.is("null", d.cuModuleLoadData(&mut module, std::ptr::null()), INVALID_VALUE);
    }),
    fact!("modules: functions by name", |d| {
        let (module, mut function) = (d.module()?, 0);
        d.is("known", d.cuModuleGetFunction(&mut function, module, c"write_pattern".as_ptr()), SUCCESS);
        d.is("unknown", d.cuModuleGetFunction(&mut function, module, c"no_such_kernel".as_ptr()), NOT_FOUND);
        d.is("no name", d.cuModuleGetFunction(&mut function, module, c"".as_ptr()), INVALID_VALUE);
        d.is("null module", d.cuModuleGetFunction(&mut function, 0, c"delay".as_ptr()), INVALID_HANDLE);
        d.is("unload", d.cuModuleUnload(module), SUCCESS);
        d.is("unload null", d.cuModuleUnload(0), INVALID_HANDLE);
    }),
    fact!("launches: a kernel writes, and another checks", |d| {
        let (writer, checker) = (d.kernel(c"write_pattern")?, d.kernel(c"count_mismatches")?);
        let (pointer, count, stream) = (d.alloc(4099)?, d.alloc(8)?, d.stream(NON_BLOCKING)?);
        d.is("write", d.launch(writer, stream, &mut [pointer, 4099, 5]), SUCCESS);
        d.is("check", d.launch(checker, stream, &mut [pointer, 4099, 5, count]), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
        d.eq("mismatches", d.word(count)?, 0);
        d.note("first word", d.word(pointer)?);
        d.is("check of another seed", d.launch(checker, stream, &mut [pointer, 4099, 6, count]), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
        d.eq("mismatches of another seed", d.word(count)? > 4000, true);
    }),
    fact!("launches: sizes of grids and blocks", |d| {
        let delay = d.kernel(c"delay")?;
        let run = |grid: [u32; 3], block: [u32; 3], shared| {
            let mut time = 0_u64;
            let mut parameters = [(&raw mut time).cast()];
            let ([x, y, z], [a, b, c]) = (grid, block);
            d.cuLaunchKernel(delay, x, y, z, a, b, c, shared, 0, parameters.as_mut_ptr(), null_mut())
        };
        d.is("no blocks", run([0, 1, 1], [1, 1, 1], 0), INVALID_VALUE);
        d.is("no threads", run([1, 1, 1], [0, 1, 1], 0), INVALID_VALUE);
        d.is("1025 threads", run([1, 1, 1], [1025, 1, 1], 0), INVALID_VALUE);
        d.is("65 threads deep", run([1, 1, 1], [1, 1, 65], 0), INVALID_VALUE);
        d.is("65536 blocks deep", run([1, 1, 65_536], [1, 1, 1], 0), INVALID_VALUE);
        d.is("1 GiB of shared memory", run([1, 1, 1], [1, 1, 1], 1 << 30), INVALID_VALUE);
        d.is("1024 threads", run([1, 1, 1], [1024, 1, 1], 0), SUCCESS);
        d.is("null function", d.launch(0, 0, &mut [0]), INVALID_HANDLE);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
    }),
    fact!("launches: a kernel of another context", |d| {
        let (delay, stream) = (d.kernel(c"delay")?, d.stream(NON_BLOCKING)?);
        d.other_context()?;
        let other = d.stream(NON_BLOCKING)?;
        d.is("in the current context's stream", d.launch(delay, other, &mut [0]), INVALID_HANDLE);
        d.is("in the current context's legacy stream", d.launch(delay, 0, &mut [0]), INVALID_HANDLE);
        d.is("in its own context's stream", d.launch(delay, stream, &mut [0]), SUCCESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
    }),
    fact!("launches: without a current context", |d| {
        let (delay, stream) = (d.kernel(c"delay")?, d.stream(NON_BLOCKING)?);
        d.is("pop", d.cuCtxPopCurrent_v2(&mut 0), SUCCESS);
        d.is("launch", d.launch(delay, stream, &mut [0]), SUCCESS);
        d.note("cuStreamQuery", d.cuStreamQuery(stream));
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
    }),
    fact!("launches: a kernel is asynchronous", |d| {
        let (delay, stream) = (d.kernel(c"delay")?, d.stream(NON_BLOCKING)?);
        d.is("warm", d.launch(delay, stream, &mut [0]), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
        d.is("200 ms", d.launch(delay, stream, &mut [200_000_000]), SUCCESS);
        d.eq("busy", d.busy(stream), true);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
    }),
    named("launches: a write to unmapped addresses loses the context", |d| {
        let (writer, pointer) = (d.kernel(c"write_pattern")?, d.alloc(4096)?);
        let (stream, event) = (d.stream(NON_BLOCKING)?, d.event(NO_TIMING)?);
        d.is("launch", d.launch(writer, stream, &mut [0x1234_5678_9000, 4096, 5]), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), ILLEGAL_ADDRESS);
        lost(d, pointer, stream, event)
    }),
    fact!("launches: a lost primary context cannot be retained again", |d| {
        let writer = d.kernel(c"write_pattern")?;
        d.run("launch", writer, &mut [0x1234_5678_9000, 4096, 5], ILLEGAL_ADDRESS);
        d.is("release", d.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
        let mut context = 0;
        d.is("retain", d.cuDevicePrimaryCtxRetain(&mut context, 0), ILLEGAL_ADDRESS);
        d.eq("no handle", context, 0);
    }),
    fact!("launches: a write to a mapping without access", |d| {
        let (writer, unit) = (d.kernel(c"write_pattern")?, d.unit()?);
        let (handle, address) = (d.create(unit)?, d.reserve(unit)?);
        d.must("cuMemMap", d.cuMemMap(address, unit, 0, handle, 0))?;
        d.run("launch", writer, &mut [address, 64, 5], ILLEGAL_ADDRESS);
        d.is("cuMemUnmap after it", d.cuMemUnmap(address, unit), SUCCESS);
        d.is("cuMemRelease after it", d.cuMemRelease(handle), SUCCESS);
        d.is("cuMemAddressFree after it", d.cuMemAddressFree(address, unit), SUCCESS);
    }),
    fact!("launches: a read after unmapping", |d| {
        let (checker, unit, count) = (d.kernel(c"count_mismatches")?, d.unit()?, d.alloc(8)?);
        let (handle, address) = (d.create(unit)?, d.reserve(unit)?);
        d.map(address, unit, handle)?;
        d.run("launch while it is mapped", checker, &mut [address, 64, 5, count], SUCCESS);
        d.must("cuMemUnmap", d.cuMemUnmap(address, unit))?;
        d.run("launch", checker, &mut [address, 64, 5, count], ILLEGAL_ADDRESS);
    }),
    fact!("launches: a fault loses every context of the device", |d| {
        let writer = d.kernel(c"write_pattern")?;
        let other = d.other_context()?;
        let pointer = d.alloc(4096)?;
        d.must("push", d.cuCtxPushCurrent_v2(d.context))?;
        d.run("launch", writer, &mut [0x1234_5678_9000, 4096, 5], ILLEGAL_ADDRESS);
        d.must("set", d.cuCtxSetCurrent(other))?;
        d.is("cuMemsetD8 in the other context", d.cuMemsetD8_v2(pointer, 1, 16), ILLEGAL_ADDRESS);
        d.is("cuCtxSynchronize in the other context", d.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    }),
    fact!("launches: a fault loses the contexts of other devices too", |d| {
        let (writer, other) = (d.kernel(c"write_pattern")?, d.second_device()?);
        d.run("launch", writer, &mut [0x1234_5678_9000, 4096, 5], ILLEGAL_ADDRESS);
        d.must("set", d.cuCtxSetCurrent(other))?;
        d.is("cuMemAlloc", d.cuMemAlloc_v2(&mut 0, 4096), ILLEGAL_ADDRESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    })
    .two_devices(),
    fact!("launches: a write to another device's memory without access", |d| {
        let (writer, other) = (d.kernel(c"write_pattern")?, d.second_device()?);
        d.must("set", d.cuCtxSetCurrent(other))?;
        let pointer = d.alloc(4096)?;
        d.must("set", d.cuCtxSetCurrent(d.context))?;
        d.run("launch", writer, &mut [pointer, 64, 5], ILLEGAL_ADDRESS);
    })
    .two_devices(),
    fact!("launches: a reset after a fault", |d| {
        let writer = d.kernel(c"write_pattern")?;
        d.run("launch", writer, &mut [0x1234_5678_9000, 4096, 5], ILLEGAL_ADDRESS);
        d.note("reset", d.cuDevicePrimaryCtxReset_v2(0));
        let mut context = 0;
        d.note("retain", d.cuDevicePrimaryCtxRetain(&mut context, 0));
        d.note("cuCtxCreate", d.cuCtxCreate_v2(&mut context, 0, 0));
    }),
    fact!("launches: a write to a read-only mapping", |d| {
        let (writer, checker, unit, count) =
            (d.kernel(c"write_pattern")?, d.kernel(c"count_mismatches")?, d.unit()?, d.alloc(8)?);
        let (handle, address) = (d.create(unit)?, d.reserve(unit)?);
        d.map(address, unit, handle)?;
        let access = Access { flags: 1, ..read_write(0) };
        d.is("read only", d.cuMemSetAccess(address, unit, &access, 1), SUCCESS);
        d.run("a kernel that reads", checker, &mut [address, 64, 5, count], SUCCESS);
        d.run("a kernel that writes", writer, &mut [address, 64, 5], ILLEGAL_ADDRESS);
    }),
];
