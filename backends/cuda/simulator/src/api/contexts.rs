//! Contexts: primary ones and others, and the stack of each thread.

use crate::boundary::{exports, put, put_optional};
use crate::code::{Answer, Code};
use crate::world::World;
use crate::world::contexts;
use std::ffi::{c_int, c_uint};

/// Flags of contexts: how the host waits, and others that have no effect here.
const FLAGS: c_uint = 0xff;

exports! {
    fn cuDevicePrimaryCtxRetain(to: *mut usize, device: c_int) |call| {
        let mut world = call.world();
        if to.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if let Some(code) = world.device(device)?.lost {
            return Err(code);
        }
        let primary = world.device(device)?.primary;
        let context = match primary {
            Some(context) => context,
            None => {
                let context = world.create_context(device as usize, true);
                world.device(device)?.primary = Some(context);
                context
            }
        };
        let of = world.contexts.get_mut(&context).ok_or(Code::INVALID_CONTEXT)?;
        of.retained += 1;
        let handle = of.handle;
        put(to, handle)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) |call| {
        let mut world = call.world();
        let of = world.device(device)?;
        let Some(context) = of.primary else {
            of.orphaned = of.orphaned.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
            return Ok(());
        };
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
            let retained = world.contexts.get(&context).map_or(0, |context| context.retained);
            world.device(device)?.orphaned += retained;
            World::destroy_context(&mut world, context);
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) |call| {
        let mut world = call.world();
        let of = world.device(device)?;
        let is_active = of.primary.is_some();
        put(flags, of.flags)?;
        put(active, c_int::from(is_active))
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) |call| {
        if flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        call.world().device(device)?.flags = flags;
        Ok(())
    }

    fn cuCtxCreate_v2(to: *mut usize, flags: c_uint, device: c_int) |call| {
        put(to, create(&mut call.world(), device)?)
    }

    fn cuCtxDestroy_v2(handle: usize) |call| {
        if handle == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut world = call.world();
        let context = world.context_of(handle)?;
        if world.contexts.get(&context).is_some_and(|context| context.is_primary) {
            return Err(Code::INVALID_CONTEXT);
        }
        let device = world.device_of(context);
        World::wait_for_device(&mut world, device);
        World::destroy_context(&mut world, context);
        if contexts::top() == handle {
            contexts::pop();
        }
        Ok(())
    }

    fn cuCtxGetCurrent(to: *mut usize) |call| {
        put(to, contexts::top())
    }

    fn cuCtxSetCurrent(handle: usize) |call| {
        if handle == 0 {
            contexts::pop();
            return Ok(());
        }
        call.world().check_stackable(handle)?;
        contexts::pop();
        contexts::push(handle);
        Ok(())
    }

    fn cuCtxPushCurrent_v2(handle: usize) |call| {
        call.world().check_stackable(handle)?;
        contexts::push(handle);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(to: *mut usize) |call| {
        let handle = contexts::pop().ok_or(Code::INVALID_CONTEXT)?;
        put_optional(to, handle);
        Ok(())
    }

    fn cuCtxGetDevice(to: *mut c_int) |call| {
        let mut world = call.world();
        let context = world.current_or_lost()?;
        let device = world.device_of(context);
        put(to, device as c_int)
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
            return Err(Code::PEER_ACCESS_UNSUPPORTED);
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
        put(mode, crate::world::captures::exchange_mode(crate::boundary::get(mode)?))
    }
}

/// Creates a context and pushes it.
fn create(world: &mut World, device: c_int) -> Answer<usize> {
    if let Some(code) = world.device(device)?.lost {
        return Err(code);
    }
    let context = world.create_context(device as usize, false);
    let handle = world.contexts.get(&context).map_or(0, |context| context.handle);
    contexts::push(handle);
    Ok(handle)
}
