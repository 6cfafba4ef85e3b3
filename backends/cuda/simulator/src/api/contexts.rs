//! Contexts: primary ones and others, and the stack of each thread.

use crate::boundary::{exports, put, put_optional};
use crate::code::Code;
use crate::context;
use crate::world::World;
use std::ffi::{c_int, c_uint, c_void};

exports! {
    fn cuDevicePrimaryCtxRetain(to: *mut usize, device: c_int) |call| {
        let mut world = call.world();
        let primary = world.device(device)?.primary;
        let context = match primary {
            Some(context) => context,
            None => {
                let context = world.create_context(device as usize, true);
                world.device(device)?.primary = Some(context);
                context
            }
        };
        world.usable(context)?;
        let of = world.contexts.get_mut(&context).ok_or(Code::INVALID_CONTEXT)?;
        of.retained += 1;
        let handle = of.handle;
        put(to, handle)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) |call| {
        let mut world = call.world();
        let context = world.device(device)?.primary.ok_or(Code::INVALID_CONTEXT)?;
        let of = world.contexts.get_mut(&context).ok_or(Code::INVALID_CONTEXT)?;
        of.retained = of.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
        if of.retained == 0 {
            World::destroy_context(&mut world, context);
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxReset_v2(device: c_int) |call| {
        let mut world = call.world();
        if let Some(context) = world.device(device)?.primary {
            World::destroy_context(&mut world, context);
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) |call| {
        let is_active = call.world().device(device)?.primary.is_some();
        put(flags, 0)?;
        put(active, c_int::from(is_active))
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) |call| {
        call.world().device(device).map(|_| ())
    }

    fn cuCtxCreate_v2(to: *mut usize, flags: c_uint, device: c_int) |call| {
        let mut world = call.world();
        world.device(device)?;
        let context = world.create_context(device as usize, false);
        let handle = world.contexts.get(&context).map_or(0, |context| context.handle);
        context::push(handle);
        put(to, handle)
    }

    fn cuCtxCreate_v4(to: *mut usize, parameters: *const c_void, flags: c_uint, device: c_int) |call| {
        let mut world = call.world();
        world.device(device)?;
        let context = world.create_context(device as usize, false);
        let handle = world.contexts.get(&context).map_or(0, |context| context.handle);
        context::push(handle);
        put(to, handle)
    }

    fn cuCtxDestroy_v2(handle: usize) |call| {
        let mut world = call.world();
        let context = world.context_of(handle)?;
        if world.contexts.get(&context).is_some_and(|context| context.is_primary) {
            return Err(Code::INVALID_CONTEXT);
        }
        World::destroy_context(&mut world, context);
        if context::top() == handle {
            context::pop();
        }
        Ok(())
    }

    fn cuCtxGetCurrent(to: *mut usize) |call| {
        put(to, context::top())
    }

    fn cuCtxSetCurrent(handle: usize) |call| {
        if handle == 0 {
            context::pop();
            return Ok(());
        }
        call.world().context_of(handle)?;
        context::pop();
        context::push(handle);
        Ok(())
    }

    fn cuCtxPushCurrent_v2(handle: usize) |call| {
        call.world().context_of(handle)?;
        context::push(handle);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(to: *mut usize) |call| {
        let handle = context::pop().ok_or(Code::INVALID_CONTEXT)?;
        put_optional(to, handle);
        Ok(())
    }

    fn cuCtxGetDevice(to: *mut c_int) |call| {
        let mut world = call.world();
        let context = world.current_or_lost()?;
        let device = world.device_of(context);
        put(to, device as c_int)
    }

    fn cuCtxGetFlags(to: *mut c_uint) |call| {
        call.world().current()?;
        put(to, 0)
    }

    fn cuCtxGetApiVersion(handle: usize, to: *mut c_uint) |call| {
        let mut world = call.world();
        let _ = if handle == 0 { world.current()? } else { world.context_of(handle)? };
        put(to, 3020)
    }

    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) |call| {
        call.world().current()?;
        put_optional(least, 0);
        put_optional(greatest, -5);
        Ok(())
    }

    fn cuCtxSynchronize() |call| {
        let mut world = call.world();
        let context = world.current()?;
        world.check_no_capture_in(context)?;
        World::synchronize_context(&mut world, context)?;
        world.trim_pools();
        Ok(())
    }

    fn cuCtxEnablePeerAccess(handle: usize, flags: c_uint) |call| {
        let mut world = call.world();
        let (current, peer) = (world.current()?, world.context_of(handle)?);
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (device, other) = (world.device_of(current), world.device_of(peer));
        if current == peer || device == other {
            return Err(Code::INVALID_DEVICE);
        }
        if !world.settings.peers {
            return Err(Code::PEER_ACCESS_UNSUPPORTED);
        }
        let of = world.contexts.get_mut(&current).ok_or(Code::INVALID_CONTEXT)?;
        match of.peers.insert(other) {
            true => Ok(()),
            false => Err(Code::PEER_ACCESS_ALREADY_ENABLED),
        }
    }

    fn cuCtxDisablePeerAccess(handle: usize) |call| {
        let mut world = call.world();
        let (current, peer) = (world.current()?, world.context_of(handle)?);
        let other = world.device_of(peer);
        let of = world.contexts.get_mut(&current).ok_or(Code::INVALID_CONTEXT)?;
        match of.peers.remove(&other) {
            true => Ok(()),
            false => Err(Code::PEER_ACCESS_NOT_ENABLED),
        }
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) |call| {
        let asked = crate::capture::Mode::of(crate::boundary::get(mode)?)?;
        put(mode, crate::capture::exchange_mode(asked) as c_int)
    }
}
