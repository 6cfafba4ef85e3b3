//! Events.

use crate::boundary::{exports, put};
use crate::code::{Answer, Code};
use crate::world::World;
use std::ffi::c_uint;

/// `CU_EVENT_BLOCKING_SYNC`, `CU_EVENT_DISABLE_TIMING`, `CU_EVENT_INTERPROCESS`
const FLAGS: c_uint = 7;
const WITHOUT_TIMING: c_uint = 2;

exports! {
    fn cuEventCreate(to: *mut usize, flags: c_uint) |call| {
        let mut world = call.world();
        let context = world.current()?;
        if flags & !FLAGS != 0 || to.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let handle = world.create_event(context, flags & WITHOUT_TIMING == 0);
        put(to, handle)
    }

    fn cuEventDestroy_v2(handle: usize) |call| {
        let mut world = call.world();
        let event = world.event_of(handle)?;
        world.handles.remove(handle);
        world.events.remove(&event);
        Ok(())
    }

    fn cuEventRecord(handle: usize, stream: usize) |call| {
        record(&mut call.world(), handle, stream)
    }

    fn cuEventRecordWithFlags(handle: usize, stream: usize, flags: c_uint) |call| {
        record(&mut call.world(), handle, stream)
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
        let mut world = call.world();
        let (start, end) = (world.event_of(start)?, world.event_of(end)?);
        let milliseconds = world.elapsed(start, end)?;
        put(to, milliseconds)
    }

    fn cuEventElapsedTime_v2(to: *mut f32, start: usize, end: usize) |call| {
        let mut world = call.world();
        let (start, end) = (world.event_of(start)?, world.event_of(end)?);
        let milliseconds = world.elapsed(start, end)?;
        put(to, milliseconds)
    }
}

fn record(world: &mut World, event: usize, stream: usize) -> Answer {
    let (event, stream) = (world.event_of(event)?, world.stream_of(stream)?);
    world.record(event, stream)
}
