//! The driver's memory pools, and memory that is allocated in a stream's order.

use crate::driver::{INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY, PoolProperties, SUCCESS};
use crate::fact::{Fact, Scene, Stop, fact};
use crate::scene::{MIB, NON_BLOCKING, on_device, read_write};
use std::ptr::{null, null_mut};

const THRESHOLD: i32 = 4;
const RESERVED: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED: i32 = 7;
const USED_HIGH: i32 = 8;

pub(crate) fn properties(device: i32, max_size: usize) -> PoolProperties {
    PoolProperties {
        kind: 1,
        handle_types: 0,
        location: on_device(device),
        windows: 0,
        max_size,
        usage: 0,
        reserved: [0; 54],
    }
}

fn pool(d: &Scene) -> Result<usize, Stop> {
    let mut pool = 0;
    d.must("cuMemPoolCreate", d.cuMemPoolCreate(&mut pool, &properties(0, 0)))?;
    Ok(pool)
}

fn get(d: &Scene, pool: usize, attribute: i32) -> u64 {
    let mut value = 77;
    d.is("cuMemPoolGetAttribute", d.cuMemPoolGetAttribute(pool, attribute, &mut value), SUCCESS);
    value
}

fn set(d: &Scene, pool: usize, attribute: i32, mut value: u64) {
    d.is("cuMemPoolSetAttribute", d.cuMemPoolSetAttribute(pool, attribute, &mut value), SUCCESS);
}

fn from_pool(d: &Scene, pool: usize, bytes: usize, stream: usize) -> Result<u64, Stop> {
    let mut pointer = 0;
    d.must("cuMemAllocFromPoolAsync", d.cuMemAllocFromPoolAsync(&mut pointer, bytes, pool, stream))?;
    Ok(pointer)
}

pub(crate) const FACTS: &[Fact] = &[
    fact!("pools: each device has a default pool", |d| {
        let (mut first, mut second, mut current) = (0, 0, 0);
        d.is("cuDeviceGetDefaultMemPool", d.cuDeviceGetDefaultMemPool(&mut first, 0), SUCCESS);
        d.is("cuDeviceGetDefaultMemPool", d.cuDeviceGetDefaultMemPool(&mut second, 0), SUCCESS);
        d.is("cuDeviceGetMemPool", d.cuDeviceGetMemPool(&mut current, 0), SUCCESS);
        d.eq("the same", first == second && first == current && first != 0, true);
        d.is("destroy", d.cuMemPoolDestroy(first), INVALID_VALUE);
        d.is("destroy null", d.cuMemPoolDestroy(0), INVALID_VALUE);
        d.is("null result", d.cuDeviceGetDefaultMemPool(null_mut(), 0), INVALID_VALUE);
    }),
    fact!("pools: attributes of a new pool", |d| {
        let pool = pool(d)?;
        for (attribute, name, expected) in [
            (1, "FOLLOW_EVENT_DEPENDENCIES", 1),
            (2, "ALLOW_OPPORTUNISTIC", 1),
            (3, "ALLOW_INTERNAL_DEPENDENCIES", 1),
        ] {
            d.eq(name, get(d, pool, attribute) & 0xFFFF_FFFF, expected);
        }
        for (attribute, name) in [
            (THRESHOLD, "RELEASE_THRESHOLD"),
            (RESERVED, "RESERVED"),
            (RESERVED_HIGH, "RESERVED_HIGH"),
            (USED, "USED"),
            (USED_HIGH, "USED_HIGH"),
        ] {
            d.eq(name, get(d, pool, attribute), 0);
        }
        let mut value = 0;
        d.is("attribute 0", d.cuMemPoolGetAttribute(pool, 0, &mut value), INVALID_VALUE);
        d.is("attribute 99", d.cuMemPoolGetAttribute(pool, 99, &mut value), INVALID_VALUE);
        d.is("null", d.cuMemPoolGetAttribute(pool, THRESHOLD, null_mut()), INVALID_VALUE);
    }),
    fact!("pools: attributes that may be set", |d| {
        let pool = pool(d)?;
        set(d, pool, THRESHOLD, u64::MAX);
        d.eq("RELEASE_THRESHOLD", get(d, pool, THRESHOLD), u64::MAX);
        set(d, pool, USED_HIGH, 0);
        set(d, pool, RESERVED_HIGH, 0);
        let mut value = 1;
        d.is("USED_HIGH to 1", d.cuMemPoolSetAttribute(pool, USED_HIGH, &mut value), INVALID_VALUE);
        value = 0;
        d.is("USED", d.cuMemPoolSetAttribute(pool, USED, &mut value), INVALID_VALUE);
        d.is("RESERVED", d.cuMemPoolSetAttribute(pool, RESERVED, &mut value), INVALID_VALUE);
    }),
    fact!("pools: bad properties", |d| {
        let (mut pool, good) = (0, properties(0, 0));
        d.is("null properties", d.cuMemPoolCreate(&mut pool, null()), INVALID_VALUE);
        d.is("null result", d.cuMemPoolCreate(null_mut(), &good), INVALID_VALUE);
        d.is("device 99", d.cuMemPoolCreate(&mut pool, &properties(99, 0)), INVALID_VALUE);
        let mut bad = good;
        bad.kind = 0;
        d.is("kind 0", d.cuMemPoolCreate(&mut pool, &bad), INVALID_VALUE);
        bad = good;
        bad.location.kind = 0;
        d.is("location 0", d.cuMemPoolCreate(&mut pool, &bad), INVALID_VALUE);
        bad = good;
        bad.handle_types = 1;
        d.is("shareable", d.cuMemPoolCreate(&mut pool, &bad), SUCCESS);
        bad.handle_types = 64;
        d.is("handle types 64", d.cuMemPoolCreate(&mut pool, &bad), INVALID_VALUE);
    }),
    fact!("pools: bytes in use and bytes reserved", |d| {
        let (pool, stream) = (pool(d)?, d.stream(NON_BLOCKING)?);
        let pointer = from_pool(d, pool, 5 * MIB + 1, stream)?;
        d.eq("used for 5 MiB + 1", get(d, pool, USED), 5 * MIB as u64 + 1);
        d.eq("reserved for 5 MiB + 1", get(d, pool, RESERVED), 32 * MIB as u64);
        let used = get(d, pool, USED);
        d.is("cuMemFreeAsync", d.cuMemFreeAsync(pointer, stream), SUCCESS);
        d.eq("used after the release's call", get(d, pool, USED), 0);
        d.eq("used at most", get(d, pool, USED_HIGH), used);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
        d.eq("reserved after synchronisation, threshold 0", get(d, pool, RESERVED), 0);
        d.eq("reserved at most", get(d, pool, RESERVED_HIGH) >= used, true);
        set(d, pool, USED_HIGH, 0);
        d.eq("used at most, reset", get(d, pool, USED_HIGH), 0);
    }),
    fact!("pools: the threshold keeps memory, trimming releases it", |d| {
        let (pool, stream) = (pool(d)?, d.stream(NON_BLOCKING)?);
        set(d, pool, THRESHOLD, u64::MAX);
        let pointer = from_pool(d, pool, 64 * MIB, stream)?;
        let small = from_pool(d, pool, 1, stream)?;
        d.free(pointer, stream);
        d.eq("kept", get(d, pool, RESERVED) >= 64 * MIB as u64, true);
        d.is("cuMemPoolTrimTo(32 MiB)", d.cuMemPoolTrimTo(pool, 32 * MIB), SUCCESS);
        d.eq("reserved after trim to 32 MiB", get(d, pool, RESERVED), 32 * MIB as u64);
        d.is("cuMemPoolTrimTo(0)", d.cuMemPoolTrimTo(pool, 0), SUCCESS);
        d.eq("reserved after trim to 0 with 1 byte in use", get(d, pool, RESERVED), 32 * MIB as u64);
        d.free(small, stream);
        d.is("cuMemPoolTrimTo(0)", d.cuMemPoolTrimTo(pool, 0), SUCCESS);
        d.eq("reserved", get(d, pool, RESERVED), 0);
    }),
    fact!("pools: memory released in a stream is reused in it at once", |d| {
        let (pool, stream) = (pool(d)?, d.stream(NON_BLOCKING)?);
        set(d, pool, THRESHOLD, u64::MAX);
        let warm = from_pool(d, pool, MIB, stream)?;
        let gate = d.gate(stream)?;
        d.is("cuMemFreeAsync", d.cuMemFreeAsync(warm, stream), SUCCESS);
        let again = from_pool(d, pool, MIB, stream)?;
        d.eq("neither waits", gate.passed(), false);
        d.eq("the same address", again == warm, true);
        d.is("cuMemFreeAsync", d.cuMemFreeAsync(again, stream), SUCCESS);
        let other = d.stream(NON_BLOCKING)?;
        let there = from_pool(d, pool, MIB, other)?;
        d.eq("the same address in another stream", there == warm, false);
        d.eq("the other stream waits", d.busy(other), false);
        d.eq("the gate is closed still", gate.passed(), false);
        d.finish_all(gate);
    }),
    fact!("pools: releasing other memory in a stream's order", |d| {
        let (pool, stream, plain) = (pool(d)?, d.stream(NON_BLOCKING)?, d.alloc(4096)?);
        d.is("null", d.cuMemFreeAsync(0, stream), SUCCESS);
        d.is("garbage", d.cuMemFreeAsync(0x1234_5678_9000, stream), INVALID_VALUE);
        d.is("of cuMemAlloc", d.cuMemFreeAsync(plain, stream), SUCCESS);
        let pointer = from_pool(d, pool, MIB, stream)?;
        d.is("inside", d.cuMemFreeAsync(pointer + 512, stream), INVALID_VALUE);
        d.is("once", d.cuMemFreeAsync(pointer, stream), SUCCESS);
        d.is("twice", d.cuMemFreeAsync(pointer, stream), INVALID_VALUE);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
    }),
    fact!("pools: memory of a pool may be released by cuMemFree", |d| {
        let (pool, stream) = (pool(d)?, d.stream(NON_BLOCKING)?);
        let pointer = from_pool(d, pool, MIB, stream)?;
        d.is("cuMemFree", d.cuMemFree_v2(pointer), SUCCESS);
        d.eq("used", get(d, pool, USED), MIB as u64);
        d.is("cuMemFree again", d.cuMemFree_v2(pointer), INVALID_VALUE);
        d.note("cuMemsetD8", d.cuMemsetD8_v2(pointer, 0, 16));
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        d.note("used after cuCtxSynchronize", get(d, pool, USED));
        let again = from_pool(d, pool, MIB, stream)?;
        d.note("the same address", again == pointer);
        d.note("used with it", get(d, pool, USED));
        d.free(again, stream);
        d.note("used after its release", get(d, pool, USED));
    }),
    fact!("pools: sizes", |d| {
        let (pool, stream) = (pool(d)?, d.stream(NON_BLOCKING)?);
        let mut pointer = 7;
        d.is("0 bytes", d.cuMemAllocFromPoolAsync(&mut pointer, 0, pool, stream), SUCCESS);
        d.eq("pointer after 0 bytes", pointer, 0);
        d.is("2^50 bytes", d.cuMemAllocFromPoolAsync(&mut pointer, 1 << 50, pool, stream), OUT_OF_MEMORY);
        d.is("null result", d.cuMemAllocFromPoolAsync(null_mut(), 4096, pool, stream), INVALID_VALUE);
        let (first, second) = (from_pool(d, pool, 1, stream)?, from_pool(d, pool, 1, stream)?);
        d.eq("distance of two of 1 byte", second.wrapping_sub(first), 512);
        d.eq("used for two of 1 byte", get(d, pool, USED), 2);
    }),
    fact!("pools: a maximum size", |d| {
        let (mut pool, mut pointer) = (0, 0);
        d.must("cuMemPoolCreate", d.cuMemPoolCreate(&mut pool, &properties(0, 64 * MIB)))?;
        d.is("above", d.cuMemAllocFromPoolAsync(&mut pointer, 65 * MIB, pool, 0), OUT_OF_MEMORY);
        d.is("below", d.cuMemAllocFromPoolAsync(&mut pointer, 40 * MIB, pool, 0), SUCCESS);
        d.is("above, together", d.cuMemAllocFromPoolAsync(&mut pointer, 40 * MIB, pool, 0), OUT_OF_MEMORY);
    }),
    fact!("pools: a pool is destroyed with memory in use", |d| {
        let (pool, stream) = (pool(d)?, d.stream(NON_BLOCKING)?);
        let pointer = from_pool(d, pool, MIB, stream)?;
        d.is("cuMemPoolDestroy", d.cuMemPoolDestroy(pool), SUCCESS);
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(pointer, 3, MIB, stream), SUCCESS);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(stream), SUCCESS);
        d.eq("word", d.word(pointer)?, 0x0303_0303);
        d.free(pointer, stream);
    }),
    fact!("pools: the handle of a destroyed pool", |d| {
        let (pool, mut pointer) = (pool(d)?, 0);
        d.is("cuMemPoolDestroy", d.cuMemPoolDestroy(pool), SUCCESS);
        d.is("allocate", d.cuMemAllocFromPoolAsync(&mut pointer, 4096, pool, 0), INVALID_VALUE);
        d.is("cuMemPoolDestroy", d.cuMemPoolDestroy(pool), INVALID_VALUE);
    })
    .simulator_only(),
    fact!("pools: the device's current pool serves cuMemAllocAsync", |d| {
        let (pool, mut pointer, mut owner) = (pool(d)?, 0, 0);
        d.is("cuDeviceSetMemPool", d.cuDeviceSetMemPool(0, pool), SUCCESS);
        d.is("cuMemAllocAsync", d.cuMemAllocAsync(&mut pointer, MIB, 0), SUCCESS);
        d.is("MEMPOOL_HANDLE", d.cuPointerGetAttribute(&mut owner, 17, pointer), SUCCESS);
        d.eq("pool", owner == pool as u64, true);
        let (mut start, mut bytes) = (0, 0);
        d.is("range", d.cuMemGetAddressRange_v2(&mut start, &mut bytes, pointer + 9), SUCCESS);
        d.eq("start", start == pointer, true);
        d.eq("bytes", bytes, MIB);
        d.is("destroying it", d.cuMemPoolDestroy(pool), SUCCESS);
        let (mut current, mut default) = (0, 0);
        d.is("cuDeviceGetMemPool", d.cuDeviceGetMemPool(&mut current, 0), SUCCESS);
        d.must("default", d.cuDeviceGetDefaultMemPool(&mut default, 0))?;
        d.eq("makes the default one current", current == default, true);
    }),
    fact!("pools: access and export", |d| {
        let (pool, mut flags, mut file) = (pool(d)?, 9, -1);
        d.is("cuMemPoolGetAccess", d.cuMemPoolGetAccess(&mut flags, pool, &mut on_device(0)), SUCCESS);
        d.eq("flags", flags, 3);
        d.is("own access, again", d.cuMemPoolSetAccess(pool, &read_write(0), 1), SUCCESS);
        let mut none = read_write(0);
        none.flags = 0;
        d.is("no access for the device itself", d.cuMemPoolSetAccess(pool, &none, 1), INVALID_DEVICE);
        d.is("export", d.cuMemPoolExportToShareableHandle(&mut file, pool, 1, 0), INVALID_VALUE);
    }),
];
