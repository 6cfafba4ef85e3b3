//! `cuInit`, errors and devices.

use crate::boundary::{exports, put, put_text, watch_forks};
use crate::code::{self, Answer, Code};
use crate::world::World;
use std::ffi::{CStr, c_char, c_int, c_uint};

exports! {
    fn cuInit(flags: c_uint) |call| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        watch_forks();
        let mut world = call.world();
        if world.devices.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        if !world.initialized && world.settings.leaks {
            super::control::report_leaks_at_exit();
        }
        world.initialized = true;
        Ok(())
    }

    fn cuDriverGetVersion(version: *mut c_int) |call| {
        let number = call.world().settings.version;
        put(version, number)
    }

    fn cuGetErrorName(number: c_int, text: *mut *const c_char) |call| {
        describe(text, code::name(number))
    }

    fn cuGetErrorString(number: c_int, text: *mut *const c_char) |call| {
        describe(text, code::text(number))
    }

    fn cuDeviceGetCount(count: *mut c_int) |call| {
        let devices = call.world().devices.len();
        put(count, devices as c_int)
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) |call| {
        call.world().device(ordinal)?;
        put(device, ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) |call| {
        let text = call.world().device(device)?.name();
        put_text(name, length, text)
    }

    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) |call| {
        let bytes = call.world().device(device)?.uuid();
        put(uuid, bytes)
    }

    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) |call| {
        let bytes = call.world().device(device)?.uuid();
        put(uuid, bytes)
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) |call| {
        let mut world = call.world();
        world.device(device)?;
        let total = world.settings.memory as usize;
        put(bytes, total)
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) |call| {
        let mut world = call.world();
        world.device(device)?;
        let number = world.attribute(attribute)?;
        put(value, number)
    }

    fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) |call| {
        let mut world = call.world();
        world.device(device)?;
        world.device(peer)?;
        let answer = world.are_peers(device, peer);
        put(can, c_int::from(answer))
    }
}

impl World {
    /// Whether a device may use another's memory. Not its own: that needs no leave.
    pub(super) fn are_peers(&self, device: c_int, peer: c_int) -> bool {
        device != peer && self.settings.peers
    }
}

fn describe(to: *mut *const c_char, text: Option<&'static CStr>) -> Answer {
    match text {
        Some(text) => put(to, text.as_ptr()),
        None => {
            put(to, std::ptr::null())?;
            Err(Code::INVALID_VALUE)
        }
    }
}
