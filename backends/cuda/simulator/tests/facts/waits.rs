//! Calls that wait for a stream's pending work before they return.

use crate::driver::{Code, SUCCESS};
use crate::fact::{Fact, fact};
use crate::scene::{MIB, NO_TIMING, NON_BLOCKING};

pub(crate) const FACTS: &[Fact] = &[
    fact!("waits: releasing memory", |d| {
        let (stream, pointer, used, host) =
            (d.stream(NON_BLOCKING)?, d.alloc(4096)?, d.alloc(64 * MIB)?, d.pinned(4096)?);
        let mut managed = 0;
        d.must("cuMemAllocManaged", d.cuMemAllocManaged(&mut managed, 4096, 1))?;
        d.waits("cuMemFree", stream, true, || d.cuMemFree_v2(pointer))?;
        d.waits("cuMemFree of 64 MiB", stream, true, || d.cuMemFree_v2(used))?;
        d.waits("cuMemFree of managed memory", stream, true, || d.cuMemFree_v2(managed))?;
        d.waits("cuMemFreeHost", stream, true, || d.cuMemFreeHost(host))?;
    }),
    fact!("waits: allocating memory", |d| {
        let (stream, mut pointer) = (d.stream(NON_BLOCKING)?, 0);
        d.waits("cuMemAlloc", stream, false, || d.cuMemAlloc_v2(&mut pointer, 4096))?;
        d.waits("cuMemAlloc of 64 MiB", stream, false, || d.cuMemAlloc_v2(&mut pointer, 64 * MIB))?;
        d.waits("cuMemAllocManaged", stream, false, || d.cuMemAllocManaged(&mut pointer, 4096, 1))?;
        d.waits("cuMemHostAlloc", stream, false, || d.cuMemHostAlloc(&mut pointer, 4096, 0))?;
        d.waits("cuMemGetInfo", stream, false, || d.cuMemGetInfo_v2(&mut 0, &mut 0))?;
    }),
    fact!("waits: virtual memory", |d| {
        let (stream, unit) = (d.stream(NON_BLOCKING)?, d.unit()?);
        let (mut handle, mut address) = (0, 0);
        let access = crate::scene::read_write(0);
        d.waits("cuMemAddressReserve", stream, false, || d.cuMemAddressReserve(&mut address, unit, 0, 0, 0))?;
        d.waits("cuMemCreate", stream, false, || {
            d.cuMemCreate(&mut handle, unit, &crate::scene::physical(0), 0)
        })?;
        d.waits("cuMemMap", stream, false, || d.cuMemMap(address, unit, 0, handle, 0))?;
        d.waits("cuMemSetAccess", stream, false, || d.cuMemSetAccess(address, unit, &access, 1))?;
        d.waits("cuMemUnmap", stream, false, || d.cuMemUnmap(address, unit))?;
        d.waits("cuMemRelease", stream, false, || d.cuMemRelease(handle))?;
        d.waits("cuMemAddressFree", stream, false, || d.cuMemAddressFree(address, unit))?;
    }),
    fact!("waits: streams, events and pools", |d| {
        let (stream, other, event) = (d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?, d.event(NO_TIMING)?);
        let (mut pool, mut pointer, mut created) = (0, 0, 0);
        let properties = crate::pools::properties(0, 0);
        d.waits("cuStreamCreate", stream, false, || d.cuStreamCreate(&mut created, 1))?;
        d.waits("cuEventCreate", stream, false, || d.cuEventCreate(&mut 0, 2))?;
        d.waits("cuEventRecord", stream, false, || d.cuEventRecord(event, stream))?;
        d.waits("cuEventDestroy", stream, false, || d.cuEventDestroy_v2(event))?;
        d.waits("cuStreamDestroy of another", stream, false, || d.cuStreamDestroy_v2(other))?;
        d.waits("cuMemPoolCreate", stream, false, || d.cuMemPoolCreate(&mut pool, &properties))?;
        d.waits("cuMemAllocFromPoolAsync", stream, false, || {
            d.cuMemAllocFromPoolAsync(&mut pointer, 64 * MIB, pool, created)
        })?;
        d.waits("cuMemFreeAsync", stream, false, || d.cuMemFreeAsync(pointer, created))?;
        d.waits("cuStreamSynchronize of another, which trims", stream, false, || {
            d.cuStreamSynchronize(created)
        })?;
        d.waits("cuMemPoolTrimTo", stream, false, || d.cuMemPoolTrimTo(pool, 0))?;
        d.waits("cuMemPoolDestroy", stream, false, || d.cuMemPoolDestroy(pool))?;
    }),
    fact!("waits: fills and copies", |d| {
        let (stream, pointer) = (d.stream(NON_BLOCKING)?, d.alloc(4096)?);
        let mut bytes = [0_u8; 64];
        d.is("warm", d.cuMemsetD8_v2(pointer, 0, 4096), SUCCESS);
        d.waits("cuMemsetD8", stream, false, || d.cuMemsetD8_v2(pointer, 0, 64))?;
        d.waits("cuMemcpyDtoH", stream, false, || d.cuMemcpyDtoH_v2(bytes.as_mut_ptr(), pointer, 64))?;
        d.waits("cuMemcpyHtoD", stream, false, || d.cuMemcpyHtoD_v2(pointer, bytes.as_ptr(), 64))?;
        d.waits("cuMemcpy to itself", stream, false, || d.cuMemcpy(pointer, pointer + 1024, 64))?;
        d.waits("cuMemsetD8Async in the stream", stream, false, || {
            d.cuMemsetD8Async(pointer, 0, 64, stream)
        })?;
        d.waits("cuMemcpyAsync to pageable memory in the stream", stream, true, || {
            d.cuMemcpyAsync(bytes.as_mut_ptr() as u64, pointer, 64, stream)
        })?;
        d.waits("cuMemcpyAsync from pageable memory in the stream", stream, false, || {
            d.cuMemcpyAsync(pointer, bytes.as_ptr() as u64, 64, stream)
        })?;
        let held = d.gate(0)?;
        d.is("cuMemsetD8 behind the legacy stream", d.cuMemsetD8_v2(pointer, 0, 64), SUCCESS);
        d.eq("waits", held.passed(), false);
    }),
    fact!("waits: modules and contexts", |d| {
        let (stream, module) = (d.stream(NON_BLOCKING)?, d.module()?);
        let mut context = 0;
        d.waits("cuCtxCreate", stream, false, || d.cuCtxCreate_v2(&mut context, 0, 0))?;
        d.waits("cuCtxDestroy of another", stream, true, || d.cuCtxDestroy_v2(context))?;
        d.waits("cuModuleUnload", stream, true, || d.cuModuleUnload(module))?;
    }),
    fact!("waits: releasing memory by the other call", |d| {
        let (stream, other, plain) = (d.stream(NON_BLOCKING)?, d.stream(NON_BLOCKING)?, d.alloc(4096)?);
        let mut pointer = 0;
        d.must("cuMemAllocAsync", d.cuMemAllocAsync(&mut pointer, MIB, other))?;
        d.must("cuStreamSynchronize", d.cuStreamSynchronize(other))?;
        for (name, call) in [
            ("cuMemFreeAsync of cuMemAlloc's", &(|| d.cuMemFreeAsync(plain, other)) as &dyn Fn() -> Code),
            ("cuMemFree of a pool's", &|| d.cuMemFree_v2(pointer)),
        ] {
            let gate = d.gate(stream)?;
            d.is(name, call(), SUCCESS);
            d.note(&format!("{name} waits"), gate.passed());
            d.finish_all(gate);
        }
    }),
];
