//! Virtual memory: reserved addresses, physical memory, and mappings.

use crate::driver::{
    Access, INVALID_DEVICE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS,
};
use crate::fact::{Fact, fact};
use crate::scene::{MIB, NON_BLOCKING, on_device, physical, read_write};
use std::ptr::{null, null_mut};

pub(crate) const FACTS: &[Fact] = &[
    fact!("virtual memory: units of 2 MiB", |d| {
        let (mut least, mut best) = (0, 0);
        d.is("minimum", d.cuMemGetAllocationGranularity(&mut least, &physical(0), 0), SUCCESS);
        d.is("recommended", d.cuMemGetAllocationGranularity(&mut best, &physical(0), 1), SUCCESS);
        d.eq("minimum", least, 2 * MIB);
        d.eq("recommended", best, 2 * MIB);
        d.is("option 2", d.cuMemGetAllocationGranularity(&mut least, &physical(0), 2), INVALID_VALUE);
        d.is("null", d.cuMemGetAllocationGranularity(&mut least, null(), 0), INVALID_VALUE);
        let mut bad = physical(0);
        bad.location.id = 99;
        d.is("device 99", d.cuMemGetAllocationGranularity(&mut least, &bad, 0), SUCCESS);
    }),
    fact!("virtual memory: reserving addresses", |d| {
        let (unit, mut address) = (d.unit()?, 0);
        d.is("0 bytes", d.cuMemAddressReserve(&mut address, 0, 0, 0, 0), INVALID_VALUE);
        d.is("1 byte", d.cuMemAddressReserve(&mut address, 1, 0, 0, 0), INVALID_VALUE);
        d.is("1.5 units", d.cuMemAddressReserve(&mut address, unit + unit / 2, 0, 0, 0), INVALID_VALUE);
        d.is("64 KiB", d.cuMemAddressReserve(&mut address, 64 << 10, 0, 0, 0), INVALID_VALUE);
        d.is("flags 1", d.cuMemAddressReserve(&mut address, unit, 0, 0, 1), INVALID_VALUE);
        d.is("aligned to 3", d.cuMemAddressReserve(&mut address, unit, 3, 0, 0), INVALID_VALUE);
        d.is("null", d.cuMemAddressReserve(null_mut(), unit, 0, 0, 0), INVALID_VALUE);
        d.is("aligned to 1 GiB", d.cuMemAddressReserve(&mut address, unit, 1 << 30, 0, 0), SUCCESS);
        d.eq("remainder", address % (1 << 30), 0);
        d.is("2^40 bytes", d.cuMemAddressReserve(&mut address, 1 << 40, 0, 0, 0), SUCCESS);
        d.is("2^60 bytes", d.cuMemAddressReserve(&mut address, 1 << 60, 0, 0, 0), OUT_OF_MEMORY);
    }),
    fact!("virtual memory: reserving at a given address", |d| {
        let unit = d.unit()?;
        let first = d.reserve(4 * unit)?;
        let mut address = 0;
        d.is("in use", d.cuMemAddressReserve(&mut address, unit, 0, first, 0), SUCCESS);
        d.eq("elsewhere", address != first, true);
        d.is("release", d.cuMemAddressFree(first, 4 * unit), SUCCESS);
        d.is("not in use", d.cuMemAddressReserve(&mut address, 4 * unit, 0, first, 0), SUCCESS);
        d.eq("there", address == first, true);
    }),
    fact!("virtual memory: releasing addresses", |d| {
        let unit = d.unit()?;
        let address = d.reserve(4 * unit)?;
        d.is("a part", d.cuMemAddressFree(address, unit), INVALID_VALUE);
        d.is("from inside", d.cuMemAddressFree(address + unit as u64, unit), INVALID_VALUE);
        d.is("too much", d.cuMemAddressFree(address, 8 * unit), INVALID_VALUE);
        d.is("all", d.cuMemAddressFree(address, 4 * unit), SUCCESS);
        d.is("again", d.cuMemAddressFree(address, 4 * unit), INVALID_VALUE);
        d.is("null", d.cuMemAddressFree(0, unit), INVALID_VALUE);
    }),
    fact!("virtual memory: creating physical memory", |d| {
        let (unit, mut handle, good) = (d.unit()?, 0, physical(0));
        d.is("0 bytes", d.cuMemCreate(&mut handle, 0, &good, 0), INVALID_VALUE);
        d.is("one and a half units", d.cuMemCreate(&mut handle, unit + unit / 2, &good, 0), INVALID_VALUE);
        d.is("flags 1", d.cuMemCreate(&mut handle, unit, &good, 1), INVALID_VALUE);
        d.is("null properties", d.cuMemCreate(&mut handle, unit, null(), 0), INVALID_VALUE);
        d.is("null result", d.cuMemCreate(null_mut(), unit, &good, 0), INVALID_VALUE);
        d.is("2^50 bytes", d.cuMemCreate(&mut handle, 1 << 50, &good, 0), OUT_OF_MEMORY);
        let mut bad = good;
        bad.kind = 0;
        d.is("kind 0", d.cuMemCreate(&mut handle, unit, &bad, 0), INVALID_VALUE);
        bad = good;
        bad.location.id = 99;
        d.is("device 99", d.cuMemCreate(&mut handle, unit, &bad, 0), INVALID_DEVICE);
        bad = good;
        bad.handle_types = 2;
        d.is("a Windows handle", d.cuMemCreate(&mut handle, unit, &bad, 0), INVALID_VALUE);
    }),
    fact!("virtual memory: releasing a handle", |d| {
        let handle = d.create(d.unit()?)?;
        d.is("once", d.cuMemRelease(handle), SUCCESS);
        d.is("twice", d.cuMemRelease(handle), INVALID_VALUE);
        d.is("null", d.cuMemRelease(0), INVALID_VALUE);
    }),
    fact!("virtual memory: a part of a handle cannot be mapped", |d| {
        let unit = d.unit()?;
        let (handle, address) = (d.create(2 * unit)?, d.reserve(4 * unit)?);
        d.is("the first half", d.cuMemMap(address, unit, 0, handle, 0), NOT_SUPPORTED);
        d.is("the second half", d.cuMemMap(address, unit, unit, handle, 0), NOT_SUPPORTED);
        d.is("more than it is", d.cuMemMap(address, 4 * unit, 0, handle, 0), NOT_SUPPORTED);
        d.is("half a unit", d.cuMemMap(address, unit / 2, 0, handle, 0), NOT_SUPPORTED);
        d.is("half a unit on", d.cuMemMap(address + unit as u64 / 2, 2 * unit, 0, handle, 0), INVALID_VALUE);
        d.is("flags", d.cuMemMap(address, 2 * unit, 0, handle, 1), INVALID_VALUE);
        d.is("outside of addresses", d.cuMemMap(0x1234_0000_0000, 2 * unit, 0, handle, 0), INVALID_VALUE);
        d.is("no handle", d.cuMemMap(address, 2 * unit, 0, 0, 0), INVALID_VALUE);
        d.is("all of it, within", d.cuMemMap(address + unit as u64, 2 * unit, 0, handle, 0), SUCCESS);
    }),
    // A real driver maps it, into addresses that nothing reserved.
    fact!("virtual memory: mapping past the end of a reservation", |d| {
        let unit = d.unit()?;
        let (handle, address) = (d.create(2 * unit)?, d.reserve(4 * unit)?);
        d.is("past the end", d.cuMemMap(address + 3 * unit as u64, 2 * unit, 0, handle, 0), INVALID_VALUE);
    })
    .simulator_only(),
    fact!("virtual memory: mapping over a mapping", |d| {
        let unit = d.unit()?;
        let (first, second, address) = (d.create(unit)?, d.create(unit)?, d.reserve(2 * unit)?);
        d.map(address, unit, first)?;
        d.is("over it", d.cuMemMap(address, unit, 0, second, 0), INVALID_VALUE);
        d.is("beside it", d.cuMemMap(address + unit as u64, unit, 0, second, 0), SUCCESS);
    }),
    fact!("virtual memory: unmapping", |d| {
        let unit = d.unit()?;
        let (first, second, address) = (d.create(2 * unit)?, d.create(2 * unit)?, d.reserve(8 * unit)?);
        d.map(address, 2 * unit, first)?;
        d.map(address + 2 * unit as u64, 2 * unit, second)?;
        d.is("a part", d.cuMemUnmap(address, unit), INVALID_VALUE);
        d.is("from inside", d.cuMemUnmap(address + unit as u64, unit), INVALID_VALUE);
        d.is("parts of two", d.cuMemUnmap(address + unit as u64, 2 * unit), INVALID_VALUE);
        d.is("more than is mapped", d.cuMemUnmap(address, 6 * unit), SUCCESS);
        d.is("nothing", d.cuMemUnmap(address + 4 * unit as u64, 2 * unit), SUCCESS);
        d.is("outside of addresses", d.cuMemUnmap(0x1234_0000_0000, unit), INVALID_VALUE);
        d.is("again", d.cuMemUnmap(address, 4 * unit), SUCCESS);
        d.map(address, 2 * unit, first)?;
        d.map(address + 2 * unit as u64, 2 * unit, second)?;
        d.is("two at once", d.cuMemUnmap(address, 4 * unit), SUCCESS);
        d.is("the addresses are free", d.cuMemAddressFree(address, 8 * unit), SUCCESS);
    }),
    fact!("virtual memory: addresses with a mapping cannot be released", |d| {
        let (unit, _, address) = d.mapped(2)?;
        d.is("cuMemAddressFree", d.cuMemAddressFree(address, 2 * unit), INVALID_VALUE);
        d.is("cuMemFree", d.cuMemFree_v2(address), INVALID_VALUE);
        d.is("cuMemsetD8", d.cuMemsetD8_v2(address, 2, unit), SUCCESS);
        d.eq("word", d.word(address)?, 0x0202_0202);
        d.is("cuMemUnmap", d.cuMemUnmap(address, unit), SUCCESS);
        d.is("cuMemAddressFree", d.cuMemAddressFree(address, 2 * unit), SUCCESS);
    }),
    fact!("virtual memory: a fill before access is set", |d| {
        let unit = d.unit()?;
        let (handle, address) = (d.create(unit)?, d.reserve(unit)?);
        d.must("cuMemMap", d.cuMemMap(address, unit, 0, handle, 0))?;
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(address, 1, unit, 0), INVALID_VALUE);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        d.access("flags", 0, address, 0);
    }),
    fact!("virtual memory: a fill without a mapping", |d| {
        let (unit, _, address) = d.mapped(2)?;
        d.is("beyond the mapping", d.cuMemsetD8Async(address, 1, 2 * unit, 0), INVALID_VALUE);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        d.is("not mapped", d.cuMemsetD8Async(address + unit as u64, 1, 16, 0), INVALID_VALUE);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
    }),
    fact!("virtual memory: setting access", |d| {
        let unit = d.unit()?;
        let (first, second, address) = (d.create(unit)?, d.create(unit)?, d.reserve(4 * unit)?);
        d.is("not mapped", d.cuMemSetAccess(address, unit, &read_write(0), 1), INVALID_VALUE);
        d.must("cuMemMap", d.cuMemMap(address, unit, 0, first, 0))?;
        d.must("cuMemMap", d.cuMemMap(address + unit as u64, unit, 0, second, 0))?;
        d.is("more than is mapped", d.cuMemSetAccess(address, 4 * unit, &read_write(0), 1), INVALID_VALUE);
        d.is("half a unit", d.cuMemSetAccess(address, unit / 2, &read_write(0), 1), INVALID_VALUE);
        d.is("no device", d.cuMemSetAccess(address, unit, &read_write(0), 0), INVALID_VALUE);
        d.is("null", d.cuMemSetAccess(address, unit, null(), 1), INVALID_VALUE);
        d.is("device 99", d.cuMemSetAccess(address, unit, &read_write(99), 1), INVALID_VALUE);
        d.is("two mappings at once", d.cuMemSetAccess(address, 2 * unit, &read_write(0), 1), SUCCESS);
        d.is("again", d.cuMemSetAccess(address, unit, &read_write(0), 1), SUCCESS);
        d.access("flags", 0, address + unit as u64, 3);
        let mut access = Access { flags: 1, ..read_write(0) };
        d.is("read only", d.cuMemSetAccess(address, unit, &access, 1), SUCCESS);
        d.access("flags", 0, address, 1);
        access.flags = 0;
        d.is("none", d.cuMemSetAccess(address, unit, &access, 1), SUCCESS);
        let code = d.cuMemGetAccess(&mut 0, &on_device(0), address + 3 * unit as u64);
        d.is("of no mapping", code, INVALID_VALUE);
    }),
    fact!("virtual memory: mappings keep the memory of a released handle", |d| {
        let unit = d.unit()?;
        let address = d.reserve(64 * unit)?;
        let before = d.free_memory()?;
        let handle = d.create(64 * unit)?;
        d.eq("taken by creation", before - d.free_memory()?, 64 * unit as i64);
        d.map(address, 64 * unit, handle)?;
        d.is("cuMemRelease", d.cuMemRelease(handle), SUCCESS);
        d.is("cuMemsetD8", d.cuMemsetD8_v2(address, 8, unit), SUCCESS);
        d.eq("word", d.word(address)?, 0x0808_0808);
        d.eq("kept by the mapping", before - d.free_memory()?, 64 * unit as i64);
        d.is("cuMemUnmap", d.cuMemUnmap(address, 64 * unit), SUCCESS);
        d.eq("released", before - d.free_memory()?, 0);
    })
    .alone(),
    fact!("virtual memory: two mappings of a handle share its bytes", |d| {
        let unit = d.unit()?;
        let (handle, first, second) = (d.create(unit)?, d.reserve(unit)?, d.reserve(unit)?);
        d.map(first, unit, handle)?;
        d.map(second, unit, handle)?;
        d.is("cuMemsetD8", d.cuMemsetD8_v2(first, 6, unit), SUCCESS);
        d.eq("word", d.word(second)?, 0x0606_0606);
        d.is("cuMemUnmap", d.cuMemUnmap(first, unit), SUCCESS);
        d.eq("word", d.word(second)?, 0x0606_0606);
        d.is("mapped again", d.cuMemMap(first, unit, 0, handle, 0), SUCCESS);
        d.is("cuMemSetAccess", d.cuMemSetAccess(first, unit, &read_write(0), 1), SUCCESS);
        d.eq("word", d.word(first)?, 0x0606_0606);
    }),
    fact!("virtual memory: retaining the handle of a mapping", |d| {
        let ((unit, handle, address), plain) = (d.mapped(2)?, d.alloc(4096)?);
        let mut found = 0;
        d.is("inside", d.cuMemRetainAllocationHandle(&mut found, address + 5), SUCCESS);
        d.eq("the same", found == handle, true);
        d.is("not mapped", d.cuMemRetainAllocationHandle(&mut found, address + unit as u64), INVALID_VALUE);
        d.is("of cuMemAlloc", d.cuMemRetainAllocationHandle(&mut found, plain), INVALID_VALUE);
        d.is("release", d.cuMemRelease(handle), SUCCESS);
        d.is("release of what was retained", d.cuMemRelease(handle), SUCCESS);
    }),
    fact!("virtual memory: attributes of a mapped pointer", |d| {
        let (unit, _, address) = d.mapped(2)?;
        for (attribute, name) in [
            (1, "CONTEXT"),
            (2, "MEMORY_TYPE"),
            (9, "DEVICE_ORDINAL"),
            (11, "RANGE_START_ADDR"),
            (12, "RANGE_SIZE"),
            (13, "MAPPED"),
            (14, "ALLOWED_HANDLE_TYPES"),
        ] {
            let mut value = 0;
            let code = d.cuPointerGetAttribute(&mut value, attribute, address + 8);
            let value = if attribute == 11 { value.wrapping_sub(address) } else { value };
            let seen = format!("{code}, {value}");
            match attribute {
                // Depends on what else the driver reserved.
                12 => d.note(name, seen),
                2 | 13 => d.eq(name, seen, format!("{SUCCESS}, {}", if attribute == 2 { 2 } else { 1 })),
                _ => d.eq(name, seen, format!("{SUCCESS}, 0")),
            }
        }
        let (mut start, mut bytes) = (0, 0);
        d.is("range", d.cuMemGetAddressRange_v2(&mut start, &mut bytes, address + 8), SUCCESS);
        d.eq("start", start == address, true);
        d.eq("bytes", bytes, unit);
        let code = d.cuMemGetAddressRange_v2(&mut start, &mut bytes, address + unit as u64);
        d.is("range of addresses without a mapping", code, NOT_FOUND);
    }),
    fact!("virtual memory: copies without a mapping or without access", |d| {
        let unit = d.unit()?;
        let (handle, address, plain) = (d.create(unit)?, d.reserve(2 * unit)?, d.alloc(4096)?);
        d.is("cuMemcpyAsync from it", d.cuMemcpyAsync(plain, address, 64, 0), INVALID_VALUE);
        d.is("cuMemcpyAsync to it", d.cuMemcpyAsync(address, plain, 64, 0), INVALID_VALUE);
        d.must("cuMemMap", d.cuMemMap(address, unit, 0, handle, 0))?;
        d.is("from it without access", d.cuMemcpyAsync(plain, address, 64, 0), INVALID_VALUE);
        d.is("to it without access", d.cuMemcpyAsync(address, plain, 64, 0), INVALID_VALUE);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
    })
    // Hardware crashes in the first copy.
    .simulator_only(),
    fact!("virtual memory: a read-only mapping", |d| {
        let ((unit, _, address), plain) = (d.mapped(1)?, d.alloc(4096)?);
        d.is("cuMemsetD8", d.cuMemsetD8_v2(address, 7, 4096), SUCCESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        let access = Access { flags: 1, ..read_write(0) };
        d.is("read only", d.cuMemSetAccess(address, unit, &access, 1), SUCCESS);
        d.is("a copy from it", d.cuMemcpyAsync(plain, address, 64, 0), SUCCESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        d.eq("word", d.word(plain)?, 0x0707_0707);
        d.is("a copy to it", d.cuMemcpyAsync(address, plain, 64, 0), INVALID_VALUE);
        d.is("a fill", d.cuMemsetD8Async(address, 1, 64, 0), INVALID_VALUE);
        d.note("cuCtxSynchronize after it", d.cuCtxSynchronize());
    }),
    fact!("virtual memory: unmapping under pending work", |d| {
        let (unit, stream) = (d.unit()?, d.stream(NON_BLOCKING)?);
        let (handle, address) = (d.create(unit)?, d.reserve(unit)?);
        d.map(address, unit, handle)?;
        let gate = d.gate(stream)?;
        d.is("cuMemsetD8Async", d.cuMemsetD8Async(address, 1, unit, stream), SUCCESS);
        d.is("cuMemUnmap", d.cuMemUnmap(address, unit), SUCCESS);
        d.note("it waited", gate.passed());
        gate.open();
        d.note("cuStreamSynchronize", d.cuStreamSynchronize(stream));
    }),
    fact!("virtual memory: retaining after the handle is released", |d| {
        let (unit, handle, address) = d.mapped(1)?;
        d.is("cuMemRelease", d.cuMemRelease(handle), SUCCESS);
        let mut found = 0;
        d.is("retain", d.cuMemRetainAllocationHandle(&mut found, address), SUCCESS);
        d.note("the same handle", found == handle);
        d.is("cuMemRelease", d.cuMemRelease(found), SUCCESS);
        d.is("again", d.cuMemRelease(found), INVALID_VALUE);
        d.is("cuMemsetD8", d.cuMemsetD8_v2(address, 1, unit), SUCCESS);
    }),
];
