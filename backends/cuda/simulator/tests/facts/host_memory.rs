//! Host memory that devices can access: managed, pinned, registered.

use crate::driver::{
    HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, NOT_FOUND, OUT_OF_MEMORY,
    SUCCESS,
};
use crate::fact::{Fact, fact};
use crate::scene::{MIB, NON_BLOCKING};
use std::ptr::null_mut;

pub(crate) const FACTS: &[Fact] = &[
    fact!("managed: flags and sizes", |d| {
        let mut pointer = 0;
        for (flags, expected) in
            [(0, INVALID_VALUE), (1, SUCCESS), (2, SUCCESS), (3, INVALID_VALUE), (4, INVALID_VALUE)]
        {
            d.is(&format!("flags {flags}"), d.cuMemAllocManaged(&mut pointer, 4096, flags), expected);
        }
        d.is("0 bytes", d.cuMemAllocManaged(&mut pointer, 0, 1), INVALID_VALUE);
        d.is("null", d.cuMemAllocManaged(null_mut(), 4096, 1), INVALID_VALUE);
        d.is("2^60 bytes", d.cuMemAllocManaged(&mut pointer, 1 << 60, 1), OUT_OF_MEMORY);
    }),
    fact!("managed: the host reads what the device wrote", |d| {
        let mut pointer = 0;
        d.must("cuMemAllocManaged", d.cuMemAllocManaged(&mut pointer, 4096, 1))?;
        d.is("cuMemsetD8", d.cuMemsetD8_v2(pointer, 6, 4096), SUCCESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        // SAFETY: managed memory of 4096 bytes, which nothing else uses after the synchronisation.
        d.eq("byte", unsafe { *((pointer + 9) as *const u8) }, 6);
        let mut value = 0;
        for (attribute, name, expected) in
            [(8, "IS_MANAGED", 1), (1, "CONTEXT", d.context as u64), (9, "DEVICE_ORDINAL", 0)]
        {
            d.is(name, d.cuPointerGetAttribute(&mut value, attribute, pointer), SUCCESS);
            d.eq(name, value & 0xFFFF_FFFF_FFFF, expected);
            value = 0;
        }
        d.is("MEMORY_TYPE", d.cuPointerGetAttribute(&mut value, 2, pointer), SUCCESS);
        d.eq("MEMORY_TYPE", value, 2);
        d.is("cuMemFree", d.cuMemFree_v2(pointer), SUCCESS);
        d.is("cuMemFree again", d.cuMemFree_v2(pointer), INVALID_VALUE);
    }),
    fact!("managed: attached to a stream", |d| {
        let (mut pointer, stream) = (0, d.stream(NON_BLOCKING)?);
        d.must("cuMemAllocManaged", d.cuMemAllocManaged(&mut pointer, 4096, 2))?;
        d.is("single", d.cuStreamAttachMemAsync(stream, pointer, 0, 4), SUCCESS);
        d.is("global", d.cuStreamAttachMemAsync(stream, pointer, 0, 1), SUCCESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
    }),
    fact!("managed: attached without flags", |d| {
        let (mut pointer, stream) = (0, d.stream(NON_BLOCKING)?);
        d.must("cuMemAllocManaged", d.cuMemAllocManaged(&mut pointer, 4096, 2))?;
        d.is("no flags", d.cuStreamAttachMemAsync(stream, pointer, 0, 0), INVALID_VALUE);
    })
    .simulator_only(),
    fact!("managed: attached in part, to the legacy stream, or device memory", |d| {
        let (mut pointer, stream) = (0, d.stream(NON_BLOCKING)?);
        d.must("cuMemAllocManaged", d.cuMemAllocManaged(&mut pointer, 4096, 2))?;
        d.is("single, in the legacy stream", d.cuStreamAttachMemAsync(0, pointer, 0, 4), INVALID_VALUE);
        d.is("part of it", d.cuStreamAttachMemAsync(stream, pointer, 64, 4), INVALID_VALUE);
        let device = d.alloc(4096)?;
        d.is("device memory", d.cuStreamAttachMemAsync(stream, device, 0, 4), INVALID_VALUE);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
    }),
    fact!("pinned: flags and sizes", |d| {
        let mut pointer = 0;
        // Pinned memory is always mapped (2), and not reported as portable (1).
        for (flags, reported) in [(0, 2), (1, 2), (2, 2), (4, 6), (7, 6)] {
            d.is(&format!("flags {flags}"), d.cuMemHostAlloc(&mut pointer, 4096, flags), SUCCESS);
            let mut set = 99;
            d.is("cuMemHostGetFlags", d.cuMemHostGetFlags(&mut set, pointer), SUCCESS);
            d.eq(&format!("flags of {flags}"), set, reported);
        }
        d.is("flags 8", d.cuMemHostAlloc(&mut pointer, 4096, 8), INVALID_VALUE);
        d.is("0 bytes", d.cuMemHostAlloc(&mut pointer, 0, 0), SUCCESS);
        d.note("pointer after 0 bytes", pointer);
        d.is("null", d.cuMemHostAlloc(null_mut(), 4096, 0), INVALID_VALUE);
        d.is("2^60 bytes", d.cuMemHostAlloc(&mut pointer, 1 << 60, 0), OUT_OF_MEMORY);
    }),
    fact!("pinned: one address for host and device", |d| {
        let pointer = d.pinned(4096)?;
        let mut device = 0;
        d.is("pointer", d.cuMemHostGetDevicePointer_v2(&mut device, pointer + 8, 0), SUCCESS);
        d.eq("the same", device == pointer + 8, true);
        d.is("flags 1", d.cuMemHostGetDevicePointer_v2(&mut device, pointer, 1), INVALID_VALUE);
        let local = 5_u32;
        d.is(
            "pageable",
            d.cuMemHostGetDevicePointer_v2(&mut device, (&raw const local) as u64, 0),
            INVALID_VALUE,
        );
        d.is("cuMemsetD8", d.cuMemsetD8_v2(pointer, 4, 4096), SUCCESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        // SAFETY: pinned memory of 4096 bytes, which nothing else uses after the synchronisation.
        d.eq("byte", unsafe { *((pointer + 4095) as *const u8) }, 4);
        let mut value = 0;
        for (attribute, name, expected) in
            [(2, "MEMORY_TYPE", 1), (11, "RANGE_START_ADDR", pointer), (12, "RANGE_SIZE", 4096)]
        {
            d.is(name, d.cuPointerGetAttribute(&mut value, attribute, pointer), SUCCESS);
            d.eq(name, value, expected);
        }
        let (mut start, mut bytes) = (0, 0);
        d.is("cuMemGetAddressRange", d.cuMemGetAddressRange_v2(&mut start, &mut bytes, pointer), SUCCESS);
    }),
    fact!("pinned: releasing other memory", |d| {
        let (pointer, device) = (d.pinned(MIB)?, d.alloc(4096)?);
        let local = 5_u32;
        d.is("null", d.cuMemFreeHost(0), SUCCESS);
        d.is("pageable", d.cuMemFreeHost((&raw const local) as u64), INVALID_VALUE);
        d.is("device memory", d.cuMemFreeHost(device), INVALID_VALUE);
        d.is("inside", d.cuMemFreeHost(pointer + 4096), INVALID_VALUE);
        d.is("as device memory", d.cuMemFree_v2(pointer), INVALID_VALUE);
        d.is("once", d.cuMemFreeHost(pointer), SUCCESS);
        d.is("twice", d.cuMemFreeHost(pointer), INVALID_VALUE);
        d.is("device memory is whole", d.cuMemFree_v2(device), SUCCESS);
    }),
    fact!("pinned: released with another context current", |d| {
        let pointer = d.pinned(4096)?;
        d.other_context()?;
        d.is("cuMemFreeHost", d.cuMemFreeHost(pointer), SUCCESS);
    }),
    fact!("pinned: copies are asynchronous", |d| {
        let (pointer, device, stream) = (d.pinned(4096)?, d.alloc(4096)?, d.stream(NON_BLOCKING)?);
        // SAFETY: pinned memory of 4096 bytes, which nothing uses yet.
        unsafe { *(pointer as *mut u32) = 1 };
        let gate = d.gate(stream)?;
        d.is("cuMemcpyAsync", d.cuMemcpyAsync(device, pointer, 4096, stream), SUCCESS);
        d.eq("it did not wait", gate.passed(), false);
        // SAFETY: as above; the copy waits for the gate, and is to see this.
        unsafe { *(pointer as *mut u32) = 2 };
        d.finish(gate, stream);
        d.eq("the copy read what was written after the call", d.word(device)?, 2);
    }),
    fact!("registered: memory is registered once", |d| {
        let memory = vec![0_u8; 64 << 10];
        let start = (memory.as_ptr() as u64).next_multiple_of(4096);
        d.is("unregister before", d.cuMemHostUnregister(start), HOST_MEMORY_NOT_REGISTERED);
        d.is("0 bytes", d.cuMemHostRegister_v2(start, 0, 0), INVALID_VALUE);
        d.is("register", d.cuMemHostRegister_v2(start, 8192, 2), SUCCESS);
        d.is("again", d.cuMemHostRegister_v2(start, 8192, 2), HOST_MEMORY_ALREADY_REGISTERED);
        d.is("in part", d.cuMemHostRegister_v2(start + 4096, 8192, 2), HOST_MEMORY_ALREADY_REGISTERED);
        d.is("unregister inside", d.cuMemHostUnregister(start + 4096), INVALID_VALUE);
        d.is("cuMemFreeHost", d.cuMemFreeHost(start), INVALID_VALUE);
        d.is("unregister", d.cuMemHostUnregister(start), SUCCESS);
        d.is("unregister again", d.cuMemHostUnregister(start), HOST_MEMORY_NOT_REGISTERED);
        let (mut from, mut bytes) = (0, 0);
        d.is("range", d.cuMemGetAddressRange_v2(&mut from, &mut bytes, start), NOT_FOUND);
    }),
    fact!("registered: copies are asynchronous", |d| {
        let mut memory = vec![1_u8; 64 << 10];
        let start = (memory.as_mut_ptr() as u64).next_multiple_of(4096);
        d.must("register", d.cuMemHostRegister_v2(start, 8192, 0))?;
        let (device, stream, mut pointer, mut value) = (d.alloc(4096)?, d.stream(NON_BLOCKING)?, 0, 0);
        d.is("pointer", d.cuMemHostGetDevicePointer_v2(&mut pointer, start + 8, 0), SUCCESS);
        d.eq("the same", pointer == start + 8, true);
        d.is("MEMORY_TYPE", d.cuPointerGetAttribute(&mut value, 2, start), SUCCESS);
        d.eq("MEMORY_TYPE", value, 1);
        let mut flags = 99;
        d.note("cuMemHostGetFlags", d.cuMemHostGetFlags(&mut flags, start));
        d.note("flags", flags);
        let gate = d.gate(stream)?;
        d.is("cuMemcpyAsync", d.cuMemcpyAsync(start, device, 4096, stream), SUCCESS);
        d.eq("it did not wait", gate.passed(), false);
        d.finish(gate, stream);
        d.is("unregister", d.cuMemHostUnregister(start), SUCCESS);
    }),
];
