//! Devices: their numbers, attributes and peers.

use crate::driver::{
    INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED,
    PEER_ACCESS_UNSUPPORTED, SUCCESS,
};
use crate::fact::{Fact, fact};
use crate::scene::{MIB, physical, read_write};
use std::ptr::null_mut;

pub(crate) const FACTS: &[Fact] = &[
    fact!("devices: ordinals that do not exist", |d| {
        let (mut device, mut count) = (0, 0);
        d.must("cuDeviceGetCount", d.cuDeviceGetCount(&mut count))?;
        d.is("cuDeviceGet(-1)", d.cuDeviceGet(&mut device, -1), INVALID_DEVICE);
        d.is("cuDeviceGet(count)", d.cuDeviceGet(&mut device, count), INVALID_DEVICE);
        d.is("cuDeviceGet(0)", d.cuDeviceGet(&mut device, 0), SUCCESS);
        d.eq("handle", device, 0);
        let (mut bytes, mut value, mut context) = (0, 0, 0);
        d.is("cuDeviceTotalMem", d.cuDeviceTotalMem_v2(&mut bytes, count), INVALID_DEVICE);
        d.is("cuDeviceGetAttribute", d.cuDeviceGetAttribute(&mut value, 10, count), INVALID_DEVICE);
        d.is("cuDevicePrimaryCtxRetain", d.cuDevicePrimaryCtxRetain(&mut context, count), INVALID_DEVICE);
        d.is("cuDevicePrimaryCtxRelease", d.cuDevicePrimaryCtxRelease_v2(count), INVALID_DEVICE);
        d.is("cuDeviceGetDefaultMemPool", d.cuDeviceGetDefaultMemPool(&mut context, count), INVALID_DEVICE);
        d.is("cuDeviceCanAccessPeer", d.cuDeviceCanAccessPeer(&mut value, 0, count), INVALID_DEVICE);
    })
    .initialised(),
    fact!("devices: null results", |d| {
        d.is("cuDeviceGet", d.cuDeviceGet(null_mut(), 0), INVALID_VALUE);
        d.is("cuDeviceGetCount", d.cuDeviceGetCount(null_mut()), INVALID_VALUE);
        d.is("cuDeviceTotalMem", d.cuDeviceTotalMem_v2(null_mut(), 0), INVALID_VALUE);
        d.is("cuDeviceGetAttribute", d.cuDeviceGetAttribute(null_mut(), 10, 0), INVALID_VALUE);
        d.is("cuDevicePrimaryCtxRetain", d.cuDevicePrimaryCtxRetain(null_mut(), 0), INVALID_VALUE);
        d.is("cuDeviceGetName", d.cuDeviceGetName(null_mut(), 10, 0), INVALID_VALUE);
    })
    .initialised(),
    fact!("devices: attributes of a data-centre GPU", |d| {
        d.eq("MAX_THREADS_PER_BLOCK", d.attribute(1), 1024);
        d.eq("WARP_SIZE", d.attribute(10), 32);
        d.eq("INTEGRATED", d.attribute(18), 0);
        d.eq("UNIFIED_ADDRESSING", d.attribute(41), 1);
        d.eq("STREAM_PRIORITIES_SUPPORTED", d.attribute(78), 1);
        d.eq("MANAGED_MEMORY", d.attribute(83), 1);
        d.eq("CONCURRENT_MANAGED_ACCESS", d.attribute(89), 1);
        d.eq("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", d.attribute(102), 1);
        d.eq("HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED", d.attribute(103), 1);
        d.eq("MEMORY_POOLS_SUPPORTED", d.attribute(115), 1);
        d.note("compute capability", format!("{}.{}", d.attribute(75), d.attribute(76)));
        d.note("multiprocessors", d.attribute(16));
        d.note("MEMPOOL_SUPPORTED_HANDLE_TYPES", d.attribute(119));
        d.note("CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM", d.attribute(91));
        d.note("PAGEABLE_MEMORY_ACCESS", d.attribute(88));
        d.note("HANDLE_TYPE_FABRIC_SUPPORTED", d.attribute(128));
        d.note("MULTICAST_SUPPORTED", d.attribute(132));
        let mut value = 0;
        d.is("attribute 0", d.cuDeviceGetAttribute(&mut value, 0, 0), INVALID_VALUE);
        d.is("attribute 100000", d.cuDeviceGetAttribute(&mut value, 100_000, 0), INVALID_VALUE);
    })
    .initialised(),
    fact!("devices: a name is cut to its buffer", |d| {
        let mut name = [1_u8; 8];
        d.is("cuDeviceGetName of 4 bytes", d.cuDeviceGetName(name.as_mut_ptr().cast(), 4, 0), SUCCESS);
        d.eq("3 letters and a zero", name[..3].iter().all(|letter| *letter > 1) && name[3] == 0, true);
        d.eq("the rest is as before", name[4..] == [1; 4], true);
    })
    .initialised(),
    fact!("devices: a name without room for it", |d| {
        let mut name = [1_u8; 8];
        d.is("cuDeviceGetName of 0 bytes", d.cuDeviceGetName(name.as_mut_ptr().cast(), 0, 0), INVALID_VALUE);
    })
    .initialised()
    .simulator_only(),
    fact!("devices: an identity that does not change", |d| {
        let (mut first, mut second) = ([0; 16], [0; 16]);
        d.is("cuDeviceGetUuid", d.cuDeviceGetUuid_v2(&mut first, 0), SUCCESS);
        d.is("cuDeviceGetUuid again", d.cuDeviceGetUuid_v2(&mut second, 0), SUCCESS);
        d.eq("the same", first == second, true);
        d.eq("not zero", first != [0; 16], true);
    })
    .initialised(),
    fact!("devices: total memory is that of the context", |d| {
        let (mut bytes, mut free, mut total) = (0, 0, 0);
        d.must("cuDeviceTotalMem", d.cuDeviceTotalMem_v2(&mut bytes, 0))?;
        d.is("cuMemGetInfo", d.cuMemGetInfo_v2(&mut free, &mut total), SUCCESS);
        d.eq("total", total, bytes);
        d.eq("free is less", free < total, true);
        d.note("total", total);
        d.is("cuMemGetInfo(null, null)", d.cuMemGetInfo_v2(null_mut(), null_mut()), SUCCESS);
    }),
    fact!("devices: a device is not its own peer", |d| {
        let mut can = 7;
        d.is("cuDeviceCanAccessPeer(0, 0)", d.cuDeviceCanAccessPeer(&mut can, 0, 0), SUCCESS);
        d.eq("can", can, 0);
        d.is("cuCtxEnablePeerAccess(own)", d.cuCtxEnablePeerAccess(d.context, 0), PEER_ACCESS_UNSUPPORTED);
        d.is("cuCtxEnablePeerAccess(null)", d.cuCtxEnablePeerAccess(0, 0), INVALID_CONTEXT);
        d.is("cuCtxDisablePeerAccess(own)", d.cuCtxDisablePeerAccess(d.context), PEER_ACCESS_NOT_ENABLED);
    }),
    fact!("devices: peer access is enabled once", |d| {
        let other = d.second_device()?;
        let mut can = 7;
        d.must("cuDeviceCanAccessPeer", d.cuDeviceCanAccessPeer(&mut can, 0, 1))?;
        d.note("can", can);
        d.is("disable before", d.cuCtxDisablePeerAccess(other), PEER_ACCESS_NOT_ENABLED);
        d.is("flags", d.cuCtxEnablePeerAccess(other, 1), INVALID_VALUE);
        d.is("enable", d.cuCtxEnablePeerAccess(other, 0), SUCCESS);
        d.is("enable again", d.cuCtxEnablePeerAccess(other, 0), PEER_ACCESS_ALREADY_ENABLED);
        d.is("disable", d.cuCtxDisablePeerAccess(other), SUCCESS);
        d.is("disable again", d.cuCtxDisablePeerAccess(other), PEER_ACCESS_NOT_ENABLED);
    })
    .two_devices(),
    fact!("devices: copies between devices need no peer access, fills do", |d| {
        let other = d.second_device()?;
        let here = d.alloc(4096)?;
        d.is("cuMemsetD8 here", d.cuMemsetD8_v2(here, 9, 4096), SUCCESS);
        d.must("cuCtxSetCurrent", d.cuCtxSetCurrent(other))?;
        let there = d.alloc(4096)?;
        d.is("cuMemcpy", d.cuMemcpy(there, here, 4096), SUCCESS);
        d.eq("word", d.word(there)?, 0x0909_0909);
        d.is("cuMemsetD8 of the other device's memory", d.cuMemsetD8_v2(here, 1, 4096), INVALID_VALUE);
        d.must("cuCtxEnablePeerAccess", d.cuCtxEnablePeerAccess(d.context, 0))?;
        d.is("cuMemsetD8 of the other device's memory, accessible", d.cuMemsetD8_v2(here, 1, 4096), SUCCESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        d.is("cuMemFree of the other device's memory", d.cuMemFree_v2(here), SUCCESS);
    })
    .two_devices(),
    fact!("devices: access to a mapping is set for each device", |d| {
        let other = d.second_device()?;
        let (unit, handle, address) = d.mapped(1)?;
        d.access("flags of the other device", 1, address, 0);
        d.is("cuMemSetAccess", d.cuMemSetAccess(address, unit, &read_write(1), 1), SUCCESS);
        d.access("flags of the first device, still", 0, address, 3);
        d.must("cuCtxSetCurrent", d.cuCtxSetCurrent(other))?;
        d.is("cuMemsetD8 from the other device", d.cuMemsetD8_v2(address, 5, MIB), SUCCESS);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), SUCCESS);
        d.eq("word", d.word(address)?, 0x0505_0505);
        let mut properties = physical(0);
        d.is("properties", d.cuMemGetAllocationPropertiesFromHandle(&mut properties, handle), SUCCESS);
        d.eq("device", properties.location.id, 0);
    })
    .two_devices(),
];
