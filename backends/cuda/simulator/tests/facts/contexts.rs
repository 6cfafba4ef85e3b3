//! Contexts: the primary ones and their reference counts, and each thread's stack.

use crate::driver::{CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_VALUE, SUCCESS};
use crate::fact::{Fact, Scene, Stop, fact};
use crate::scene::physical;

fn current(d: &Scene) -> usize {
    let mut context = 9;
    d.is("cuCtxGetCurrent", d.cuCtxGetCurrent(&mut context), SUCCESS);
    context
}

fn state(d: &Scene) -> i32 {
    let (mut flags, mut active) = (0, 9);
    d.is("cuDevicePrimaryCtxGetState", d.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active), SUCCESS);
    active
}

fn retain(d: &Scene) -> Result<usize, Stop> {
    let mut context = 0;
    d.must("cuDevicePrimaryCtxRetain", d.cuDevicePrimaryCtxRetain(&mut context, 0))?;
    Ok(context)
}

pub(crate) const FACTS: &[Fact] = &[
    fact!("contexts: calls that need a current context", |d| {
        let (mut pointer, mut handle, mut device, mut bytes, mut total) = (0, 0, 0, 0, 0);
        d.eq("current", current(d), 0);
        d.is("cuMemAlloc", d.cuMemAlloc_v2(&mut pointer, 4096), INVALID_CONTEXT);
        d.is("cuMemAllocManaged", d.cuMemAllocManaged(&mut pointer, 4096, 1), INVALID_CONTEXT);
        d.is("cuMemHostAlloc", d.cuMemHostAlloc(&mut pointer, 4096, 0), INVALID_CONTEXT);
        d.is("cuMemAllocAsync", d.cuMemAllocAsync(&mut pointer, 4096, 0), INVALID_CONTEXT);
        d.is("cuStreamCreate", d.cuStreamCreate(&mut handle, 0), INVALID_CONTEXT);
        d.is("cuEventCreate", d.cuEventCreate(&mut handle, 0), INVALID_CONTEXT);
        d.is("cuCtxGetDevice", d.cuCtxGetDevice(&mut device), INVALID_CONTEXT);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), INVALID_CONTEXT);
        d.is("cuMemGetInfo", d.cuMemGetInfo_v2(&mut bytes, &mut total), INVALID_CONTEXT);
        d.is("cuStreamSynchronize(0)", d.cuStreamSynchronize(0), INVALID_CONTEXT);
        d.is("cuStreamQuery(0)", d.cuStreamQuery(0), INVALID_CONTEXT);
        d.is("cuMemsetD8(garbage)", d.cuMemsetD8_v2(0x1000, 0, 1), INVALID_CONTEXT);
        d.is("cuMemFree(garbage)", d.cuMemFree_v2(0x1000), INVALID_VALUE);
        d.is("cuMemFree(0)", d.cuMemFree_v2(0), SUCCESS);
        d.is("cuMemFreeHost(garbage)", d.cuMemFreeHost(0x1000), INVALID_VALUE);
        d.is("cuModuleLoadData", d.cuModuleLoadData(&mut handle, c"x".as_ptr()), INVALID_CONTEXT);
        let mut id = 0;
        d.is("cuStreamGetId(0)", d.cuStreamGetId(0, &mut id), INVALID_CONTEXT);
    })
    .initialised(),
    fact!("contexts: virtual memory and pools need no current context", |d| {
        let (mut handle, mut address, mut unit, mut pool) = (0, 0, 0, 0);
        d.is("granularity", d.cuMemGetAllocationGranularity(&mut unit, &physical(0), 0), SUCCESS);
        d.is("cuMemAddressReserve", d.cuMemAddressReserve(&mut address, 2 << 20, 0, 0, 0), SUCCESS);
        d.is("cuMemCreate", d.cuMemCreate(&mut handle, 2 << 20, &physical(0), 0), SUCCESS);
        d.is("cuMemMap", d.cuMemMap(address, 2 << 20, 0, handle, 0), SUCCESS);
        d.is("cuMemSetAccess", d.cuMemSetAccess(address, 2 << 20, &crate::scene::read_write(0), 1), SUCCESS);
        d.is("cuMemUnmap", d.cuMemUnmap(address, 2 << 20), SUCCESS);
        d.is("cuMemRelease", d.cuMemRelease(handle), SUCCESS);
        d.is("cuMemAddressFree", d.cuMemAddressFree(address, 2 << 20), SUCCESS);
        d.is("cuDeviceGetDefaultMemPool", d.cuDeviceGetDefaultMemPool(&mut pool, 0), SUCCESS);
        d.is("cuMemPoolTrimTo", d.cuMemPoolTrimTo(pool, 0), SUCCESS);
        d.is("cuMemPoolCreate", d.cuMemPoolCreate(&mut pool, &crate::pools::properties(0, 0)), SUCCESS);
        d.eq("primary context active", state(d), 0);
    })
    .initialised(),
    fact!("contexts: references to a primary context are counted", |d| {
        d.eq("active before", state(d), 0);
        let (first, second) = (retain(d)?, retain(d)?);
        d.eq("the same handle", first == second, true);
        d.eq("current after retain", current(d), 0);
        d.eq("active", state(d), 1);
        d.is("release", d.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
        d.eq("active after one release", state(d), 1);
        d.is("release", d.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
        d.eq("active after both", state(d), 0);
        d.is("release once more", d.cuDevicePrimaryCtxRelease_v2(0), INVALID_CONTEXT);
    })
    .initialised(),
    fact!("contexts: a released primary context stays current", |d| {
        let pointer = d.alloc(4096)?;
        d.is("release", d.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
        d.eq("current", current(d) == d.context, true);
        let mut other = 0;
        d.is("cuMemAlloc", d.cuMemAlloc_v2(&mut other, 4096), CONTEXT_IS_DESTROYED);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
        d.is("cuMemFree", d.cuMemFree_v2(pointer), CONTEXT_IS_DESTROYED);
        d.is("cuStreamQuery(0)", d.cuStreamQuery(0), CONTEXT_IS_DESTROYED);
        let again = retain(d)?;
        d.eq("the same handle", again == d.context, true);
        d.is("cuMemAlloc after retain", d.cuMemAlloc_v2(&mut other, 4096), SUCCESS);
        d.note("the same address", other == pointer);
    }),
    fact!("contexts: memory is released with its context", |d| {
        let pointer = d.alloc(64 << 20)?;
        d.is("release", d.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
        retain(d)?;
        d.is("cuMemFree", d.cuMemFree_v2(pointer), INVALID_VALUE);
        d.is("cuMemsetD8", d.cuMemsetD8_v2(pointer, 0, 16), INVALID_VALUE);
    }),
    fact!("contexts: a released primary context can be pushed", |d| {
        d.is("pop", d.cuCtxPopCurrent_v2(&mut 0), SUCCESS);
        d.is("release", d.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
        d.is("cuCtxPushCurrent", d.cuCtxPushCurrent_v2(d.context), SUCCESS);
        d.is("cuCtxSetCurrent", d.cuCtxSetCurrent(d.context), SUCCESS);
        let mut pointer = 0;
        d.is("cuMemAlloc", d.cuMemAlloc_v2(&mut pointer, 4096), CONTEXT_IS_DESTROYED);
    }),
    fact!("contexts: each thread has a stack", |d| {
        d.eq("current", current(d) == d.context, true);
        d.is("push", d.cuCtxPushCurrent_v2(d.context), SUCCESS);
        d.is("push again", d.cuCtxPushCurrent_v2(d.context), SUCCESS);
        let elsewhere = std::thread::scope(|scope| scope.spawn(|| current(d)).join().unwrap());
        d.eq("current in another thread", elsewhere, 0);
        let mut popped = 0;
        for _ in 0..3 {
            d.is("pop", d.cuCtxPopCurrent_v2(&mut popped), SUCCESS);
            d.eq("popped", popped == d.context, true);
        }
        d.eq("current", current(d), 0);
        d.is("pop of an empty stack", d.cuCtxPopCurrent_v2(&mut popped), INVALID_CONTEXT);
    }),
    fact!("contexts: setting replaces the top", |d| {
        d.is("set null", d.cuCtxSetCurrent(0), SUCCESS);
        d.eq("current", current(d), 0);
        d.is("set null on an empty stack", d.cuCtxSetCurrent(0), SUCCESS);
        d.is("push", d.cuCtxPushCurrent_v2(d.context), SUCCESS);
        d.is("push", d.cuCtxPushCurrent_v2(d.context), SUCCESS);
        d.is("set null", d.cuCtxSetCurrent(0), SUCCESS);
        d.eq("null pops, which shows what is below", current(d) == d.context, true);
        d.is("push null", d.cuCtxPushCurrent_v2(0), INVALID_VALUE);
    }),
    fact!("contexts: creation pushes a context, destruction pops it", |d| {
        let other = d.other_context()?;
        d.eq("current is the new one", current(d) == other, true);
        let mut device = 9;
        d.is("cuCtxGetDevice", d.cuCtxGetDevice(&mut device), SUCCESS);
        d.eq("device", device, 0);
        d.is("destroy", d.cuCtxDestroy_v2(other), SUCCESS);
        d.eq("current is the old one", current(d) == d.context, true);
        d.is("destroy null", d.cuCtxDestroy_v2(0), INVALID_VALUE);
        d.is("destroy a primary one", d.cuCtxDestroy_v2(d.context), INVALID_CONTEXT);
    }),
    fact!("contexts: a destroyed context below the top", |d| {
        let other = d.other_context()?;
        d.is("push", d.cuCtxPushCurrent_v2(d.context), SUCCESS);
        d.is("destroy", d.cuCtxDestroy_v2(other), SUCCESS);
        d.eq("current", current(d) == d.context, true);
        d.is("pop", d.cuCtxPopCurrent_v2(&mut 0), SUCCESS);
        let mut pointer = 0;
        d.eq("current is the destroyed one", current(d) == other, true);
        d.is("cuMemAlloc", d.cuMemAlloc_v2(&mut pointer, 4096), CONTEXT_IS_DESTROYED);
    }),
    fact!("contexts: memory of one context is usable in another", |d| {
        let pointer = d.alloc(4096)?;
        d.other_context()?;
        d.is("cuMemsetD8", d.cuMemsetD8_v2(pointer, 3, 4096), SUCCESS);
        d.eq("word", d.word(pointer)?, 0x0303_0303);
        let mut owner = 0;
        d.is("owner", d.cuPointerGetAttribute(&mut owner, 1, pointer), SUCCESS);
        d.eq("owner is the first", owner == d.context as u64, true);
        d.is("cuMemFree", d.cuMemFree_v2(pointer), SUCCESS);
    }),
    fact!("contexts: flags may change while the context is active", |d| {
        d.is("cuDevicePrimaryCtxSetFlags", d.cuDevicePrimaryCtxSetFlags_v2(0, 4), SUCCESS);
        let (mut flags, mut active) = (0, 0);
        d.is("state", d.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active), SUCCESS);
        d.eq("flags", flags, 4);
        d.is("unknown flags", d.cuDevicePrimaryCtxSetFlags_v2(0, 1 << 20), INVALID_VALUE);
    }),
    fact!("contexts: a reset ends a retained context", |d| {
        let pointer = d.alloc(4096)?;
        d.is("reset", d.cuDevicePrimaryCtxReset_v2(0), SUCCESS);
        d.eq("active", state(d), 0);
        d.is("cuMemFree", d.cuMemFree_v2(pointer), CONTEXT_IS_DESTROYED);
        let mut other = 0;
        d.is("cuMemAlloc", d.cuMemAlloc_v2(&mut other, 4096), CONTEXT_IS_DESTROYED);
        d.is("release", d.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
    }),
];
