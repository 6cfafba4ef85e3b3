//! Device memory: allocation, release, fills, copies, and attributes of pointers.

use crate::driver::{INVALID_VALUE, NOT_FOUND, OUT_OF_MEMORY, SUCCESS};
use crate::fact::{Fact, fact};
use crate::scene::MIB;
use std::ptr::null_mut;

pub(crate) const FACTS: &[Fact] = &[
    fact!("memory: 0 bytes, and a null result", |d| {
        let mut pointer = 7;
        d.is("cuMemAlloc of 0 bytes", d.cuMemAlloc_v2(&mut pointer, 0), INVALID_VALUE);
        d.eq("pointer after 0 bytes", pointer, 0);
        d.is("cuMemAlloc(null)", d.cuMemAlloc_v2(null_mut(), 4096), INVALID_VALUE);
    }),
    fact!("memory: more than is available", |d| {
        let (mut free, mut total, mut pointer) = (0, 0, 7);
        d.must("cuMemGetInfo", d.cuMemGetInfo_v2(&mut free, &mut total))?;
        d.is("twice the total", d.cuMemAlloc_v2(&mut pointer, total * 2), OUT_OF_MEMORY);
        d.eq("pointer after it", pointer, 0);
        d.is("the total", d.cuMemAlloc_v2(&mut pointer, total), OUT_OF_MEMORY);
        d.is("2^60", d.cuMemAlloc_v2(&mut pointer, 1 << 60), OUT_OF_MEMORY);
        d.is("all but one", d.cuMemAlloc_v2(&mut pointer, usize::MAX), OUT_OF_MEMORY);
        d.is("and then a little", d.cuMemAlloc_v2(&mut pointer, 4096), SUCCESS);
    }),
    fact!("memory: aligned to 256 bytes at least", |d| {
        let mut pointers = Vec::new();
        for bytes in [1, 3, 255, 257, 4097, MIB + 1, 3 * MIB] {
            let mut pointer = 0;
            d.is("cuMemAlloc", d.cuMemAlloc_v2(&mut pointer, bytes), SUCCESS);
            d.eq("aligned to 256", pointer % 256, 0);
            d.note("trailing zeros", pointer.trailing_zeros());
            pointers.push(pointer);
        }
        d.note("distance of the first two", pointers[1].wrapping_sub(pointers[0]) as i64);
    }),
    fact!("memory: releasing other addresses", |d| {
        let pointer = d.alloc(MIB)?;
        let local = 5_u32;
        d.is("null", d.cuMemFree_v2(0), SUCCESS);
        d.is("inside", d.cuMemFree_v2(pointer + 256), INVALID_VALUE);
        d.is("garbage", d.cuMemFree_v2(0x1234_5678_9000), INVALID_VALUE);
        d.is("the host's", d.cuMemFree_v2((&raw const local) as u64), INVALID_VALUE);
        d.is("once", d.cuMemFree_v2(pointer), SUCCESS);
        d.is("twice", d.cuMemFree_v2(pointer), INVALID_VALUE);
        d.is("and the context works", d.cuCtxSynchronize(), SUCCESS);
    }),
    fact!("memory: an allocation reduces free memory until its release", |d| {
        let warm = d.alloc(MIB)?;
        let before = d.free_memory()?;
        let mut pointer = 0;
        d.must("cuMemAlloc", d.cuMemAlloc_v2(&mut pointer, 256 * MIB))?;
        let during = d.free_memory()?;
        d.eq("taken", before - during, 256 * MIB as i64);
        d.is("cuMemFree", d.cuMemFree_v2(pointer), SUCCESS);
        d.eq("released", d.free_memory()? - during, 256 * MIB as i64);
        d.is("cuMemAlloc of 1 byte", d.cuMemAlloc_v2(&mut pointer, 1), SUCCESS);
        d.note("taken by 1 byte", before - d.free_memory()?);
        d.is("cuMemAlloc of 2 MiB + 1", d.cuMemAlloc_v2(&mut pointer, 2 * MIB + 1), SUCCESS);
        d.note("taken by that and 2 MiB + 1", before - d.free_memory()?);
        d.is("cuMemFree", d.cuMemFree_v2(warm), SUCCESS);
    })
    .alone(),
    fact!("memory: fills and copies of 0 bytes", |d| {
        let pointer = d.alloc(4096)?;
        d.is("cuMemsetD8 of 0 bytes", d.cuMemsetD8_v2(pointer, 1, 0), SUCCESS);
        d.is("cuMemsetD8Async of 0 bytes", d.cuMemsetD8Async(pointer, 1, 0, 0), SUCCESS);
        d.is("cuMemsetD8 of 0 bytes at null", d.cuMemsetD8_v2(0, 1, 0), SUCCESS);
        d.is("cuMemcpy of 0 bytes", d.cuMemcpy(pointer, pointer + 8, 0), SUCCESS);
        d.is("cuMemcpyAsync of 0 bytes", d.cuMemcpyAsync(pointer, pointer + 8, 0, 0), SUCCESS);
        d.is("cuMemcpyAsync of 0 bytes at null", d.cuMemcpyAsync(0, 0, 0, 0), SUCCESS);
        d.is("cuMemcpyHtoD of 0 bytes", d.cuMemcpyHtoD_v2(pointer, [0].as_ptr(), 0), SUCCESS);
        d.eq("word", d.word(pointer)?, 0);
    }),
    fact!("memory: fills outside of allocations", |d| {
        let pointer = d.alloc(4 * MIB)?;
        d.is("null", d.cuMemsetD8_v2(0, 1, 16), INVALID_VALUE);
        d.is("past the end", d.cuMemsetD8_v2(pointer + 4 * MIB as u64 - 8, 1, 16), INVALID_VALUE);
        d.is("past the end, later", d.cuMemsetD8Async(pointer + 4 * MIB as u64 - 8, 1, 16, 0), INVALID_VALUE);
        d.is("32-bit words, unaligned", d.cuMemsetD32_v2(pointer + 1, 1, 4), INVALID_VALUE);
        d.is("garbage", d.cuMemsetD8_v2(0x1234_5678_9000, 1, 16), INVALID_VALUE);
        d.is("garbage, later", d.cuMemsetD8Async(0x1234_5678_9000, 1, 16, 0), INVALID_VALUE);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        d.is("the last bytes", d.cuMemsetD8_v2(pointer + 4 * MIB as u64 - 16, 1, 16), SUCCESS);
    }),
    fact!("memory: copies past the end", |d| {
        let (from, to) = (d.alloc(4 * MIB)?, d.alloc(8 * MIB)?);
        d.is("cuMemcpy", d.cuMemcpy(to, from, 6 * MIB), INVALID_VALUE);
        d.is("cuMemcpyAsync", d.cuMemcpyAsync(to, from, 6 * MIB, 0), INVALID_VALUE);
        let mut host = vec![0; 6 * MIB];
        d.is("cuMemcpyDtoH", d.cuMemcpyDtoH_v2(host.as_mut_ptr(), from, 6 * MIB), INVALID_VALUE);
        d.is("cuMemcpyHtoD", d.cuMemcpyHtoD_v2(from, host.as_ptr(), 6 * MIB), INVALID_VALUE);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        d.is("within", d.cuMemcpy(to + 64, from + 64, 3 * MIB), SUCCESS);
    }),
    fact!("memory: copies detect host memory by address", |d| {
        let pointer = d.alloc(4096)?;
        let (source, mut target) = ([7_u8; 64], [0_u8; 64]);
        d.is("from pageable memory", d.cuMemcpy(pointer, source.as_ptr() as u64, 64), SUCCESS);
        d.is("to pageable memory", d.cuMemcpyAsync(target.as_mut_ptr() as u64, pointer, 64, 0), SUCCESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        d.eq("bytes", target == source, true);
        d.is("host to host", d.cuMemcpy(target.as_mut_ptr() as u64, source.as_ptr() as u64, 64), SUCCESS);
    }),
    fact!("memory: the range around a pointer", |d| {
        let pointer = d.alloc(MIB + 5)?;
        let (mut start, mut bytes) = (0, 0);
        d.is("inside", d.cuMemGetAddressRange_v2(&mut start, &mut bytes, pointer + 77), SUCCESS);
        d.eq("start", start == pointer, true);
        d.eq("bytes", bytes, MIB + 5);
        d.is("only the start", d.cuMemGetAddressRange_v2(&mut start, null_mut(), pointer), SUCCESS);
        d.is("garbage", d.cuMemGetAddressRange_v2(&mut start, &mut bytes, 0x1234_5678_9000), NOT_FOUND);
        d.is("null", d.cuMemGetAddressRange_v2(&mut start, &mut bytes, 0), NOT_FOUND);
        d.is("cuMemFree", d.cuMemFree_v2(pointer), SUCCESS);
        d.is("freed", d.cuMemGetAddressRange_v2(&mut start, &mut bytes, pointer), NOT_FOUND);
    }),
    fact!("memory: attributes of a pointer", |d| {
        let pointer = d.alloc(4096)?;
        let get = |attribute, expected: u64, name: &str| {
            let mut value = 0;
            d.is(name, d.cuPointerGetAttribute(&mut value, attribute, pointer + 8), SUCCESS);
            d.eq(name, value, expected);
        };
        get(1, d.context as u64, "CONTEXT");
        get(2, 2, "MEMORY_TYPE");
        get(3, pointer + 8, "DEVICE_POINTER");
        get(8, 0, "IS_MANAGED");
        get(9, 0, "DEVICE_ORDINAL");
        get(11, pointer, "RANGE_START_ADDR");
        get(12, 4096, "RANGE_SIZE");
        get(13, 1, "MAPPED");
        get(17, 0, "MEMPOOL_HANDLE");
        let (mut value, local) = (0, 5_u32);
        d.is("the host's", d.cuPointerGetAttribute(&mut value, 2, (&raw const local) as u64), INVALID_VALUE);
        d.is("garbage", d.cuPointerGetAttribute(&mut value, 2, 0x1234_5678_9000), INVALID_VALUE);
        d.is("attribute 0", d.cuPointerGetAttribute(&mut value, 0, pointer), INVALID_VALUE);
        d.is("cuMemFree", d.cuMemFree_v2(pointer), SUCCESS);
        d.is("freed", d.cuPointerGetAttribute(&mut value, 2, pointer), INVALID_VALUE);
    }),
    fact!("memory: a reused address has a new buffer identity", |d| {
        let mut last = 0;
        let mut addresses = Vec::new();
        for _ in 0..10 {
            let pointer = d.alloc(4 * MIB)?;
            let mut id = 0;
            d.is("BUFFER_ID", d.cuPointerGetAttribute(&mut id, 7, pointer), SUCCESS);
            d.eq("greater than the last", id > last, true);
            last = id;
            addresses.push(pointer);
            d.is("cuMemFree", d.cuMemFree_v2(pointer), SUCCESS);
        }
        d.note("the address came again", addresses.windows(2).filter(|pair| pair[0] == pair[1]).count());
    }),
];
