//! Events.

use crate::boundary::{exports, put};
use crate::code::{Answer, Code};
use crate::world::World;
use std::ffi::c_uint;

/// `CU_EVENT_BLOCKING_SYNC`, `CU_EVENT_DISABLE_TIMING`, `CU_EVENT_INTERPROCESS`
const FLAGS: c_uint = 7;
const WITHOUT_TIMING: c_uint = 2;
const SHARED: c_uint = 4;
/// `CU_EVENT_RECORD_EXTERNAL`, and the same of a wait.
const EXTERNAL: c_uint = 1;

exports! {
    fn cuEventCreate(to: *mut usize, flags: c_uint) |call| {
        let mut world = call.world();
        let context = world.current()?;
        let is_shared_with_timing = flags & SHARED != 0 && flags & WITHOUT_TIMING == 0;
        if flags & !FLAGS != 0 || is_shared_with_timing || to.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let handle = world.create_event(context, flags & WITHOUT_TIMING == 0);
        put(to, handle)
    }

    fn cuEventDestroy_v2(handle: usize) |call| {
        let mut world = call.world();
        let event = world.event_of(handle)?;
        let context = world.event(event)?.context;
        world.handles.remove(handle);
        world.events.remove(&event);
        // It is destroyed all the same.
        world.usable(context)
    }

    fn cuEventRecord(handle: usize, stream: usize) |call| {
        record(&mut call.world(), handle, stream)
    }

    fn cuEventRecordWithFlags(handle: usize, stream: usize, flags: c_uint) |call| {
        let mut world = call.world();
        let of = world.stream_of(stream)?;
        world.check_external(of, flags)?;
        record(&mut world, handle, stream)
    }

    fn cuEventQuery(handle: usize) |call| {
        let mut world = call.world();
        let event = world.event_of(handle)?;
        world.check_unsafe_call()?;
        match world.is_complete(event)? {
            true => Ok(()),
            false => Err(Code::NOT_READY),
        }
    }

    fn cuEventSynchronize(handle: usize) |call| {
        let mut world = call.world();
        let event = world.event_of(handle)?;
        world.check_unsafe_call()?;
        World::synchronize_event(&mut world, event)?;
        world.trim_pools();
        Ok(())
    }

    fn cuEventElapsedTime(to: *mut f32, start: usize, end: usize) |call| {
        elapsed(&mut call.world(), to, start, end)
    }

    fn cuEventElapsedTime_v2(to: *mut f32, start: usize, end: usize) |call| {
        elapsed(&mut call.world(), to, start, end)
    }
}

impl World {
    /// Checks the flags of a record or a wait: external ones belong into captures.
    pub(super) fn check_external(&mut self, stream: u64, flags: c_uint) -> Answer {
        match flags {
            0 => Ok(()),
            EXTERNAL if self.capturing(stream)?.is_some() => Err(Code::NOT_SUPPORTED),
            EXTERNAL => Err(Code::ILLEGAL_STATE),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

fn elapsed(world: &mut World, to: *mut f32, start: usize, end: usize) -> Answer {
    let (start, end) = (world.event_of(start)?, world.event_of(end)?);
    let milliseconds = world.elapsed(start, end)?;
    // As the driver does, which calls a missing result an invalid handle.
    put(to, milliseconds).map_err(|_| Code::INVALID_HANDLE)
}

fn record(world: &mut World, event: usize, stream: usize) -> Answer {
    let (event, stream) = (world.event_of(event)?, world.stream_of(stream)?);
    world.record(event, stream)
}
