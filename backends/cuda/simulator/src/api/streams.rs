//! Streams.

use crate::boundary::{exports, put, put_optional};
use crate::code::Code;
use crate::objects::capture::Mode;
use crate::objects::memory::{Allocation, Area, Source};
use crate::objects::stream::Kind;
use crate::objects::work::Work;
use crate::world::World;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: c_uint = 1;
/// `CU_MEM_ATTACH_GLOBAL` and the others.
const GLOBAL: c_uint = 1;
const HOST: c_uint = 2;
const SINGLE: c_uint = 4;
/// The priorities that streams are held to.
const PRIORITIES: std::ops::RangeInclusive<c_int> = -5..=0;

exports! {
    fn cuStreamCreate(to: *mut usize, flags: c_uint) |call| {
        create(&mut call.world(), to, flags, 0)
    }

    fn cuStreamCreateWithPriority(to: *mut usize, flags: c_uint, priority: c_int) |call| {
        create(&mut call.world(), to, flags, priority)
    }

    fn cuStreamDestroy_v2(handle: usize) |call| {
        if handle <= 2 {
            return Err(Code::INVALID_HANDLE);
        }
        let mut world = call.world();
        let stream = world.created_stream_of(handle)?;
        let context = world.stream(stream)?.context;
        world.leave_capture(stream)?;
        world.destroy_stream(handle)?;
        // It is destroyed all the same.
        world.usable(context)
    }

    fn cuStreamGetCtx(handle: usize, to: *mut usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        let context = world.context_handle_of(stream)?;
        put(to, context)
    }

    fn cuStreamGetCtx_v2(handle: usize, to: *mut usize, green: *mut usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        let context = world.context_handle_of(stream)?;
        put(green, 0)?;
        put(to, context)
    }

    fn cuStreamGetId(handle: usize, to: *mut c_ulonglong) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        world.check_not_captured(stream)?;
        put(to, stream)
    }

    fn cuStreamGetFlags(handle: usize, to: *mut c_uint) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        let is_blocking = !matches!(world.stream(stream)?.kind, Kind::Created { blocking: false });
        put(to, if is_blocking { 0 } else { NON_BLOCKING })
    }

    fn cuStreamGetPriority(handle: usize, to: *mut c_int) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        let priority = world.stream(stream)?.priority;
        put(to, priority)
    }

    fn cuStreamQuery(handle: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        world.check_not_captured(stream)?;
        world.check_unsafe_call()?;
        let (goals, clock) = world.goals(stream)?;
        if !goals.iter().all(|&(stream, number)| world.is_done(stream, number)) {
            return Err(Code::NOT_READY);
        }
        world.learn(&clock);
        Ok(())
    }

    fn cuStreamSynchronize(handle: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        world.check_not_captured(stream)?;
        world.check_unsafe_call()?;
        World::synchronize_stream(&mut world, stream)?;
        world.trim_pools();
        Ok(())
    }

    fn cuStreamWaitEvent(handle: usize, event: usize, flags: c_uint) |call| {
        let mut world = call.world();
        let (stream, event) = (world.stream_of(handle)?, world.event_of(event)?);
        world.check_external(stream, flags)?;
        world.wait(stream, event)
    }

    fn cuStreamAddCallback(
        handle: usize,
        function: Option<extern "C" fn(usize, c_int, *mut c_void)>,
        argument: *mut c_void,
        flags: c_uint,
    ) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        world.check_not_captured(stream)?;
        let argument = argument.expose_provenance();
        world.submit(stream, Work::Callback { function, stream: handle, argument })
    }

    fn cuStreamAttachMemAsync(handle: usize, address: u64, bytes: usize, flags: c_uint) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        let is_whole = match world.memory.areas.get(&address) {
            Some(Area::Allocation(Allocation { source: Source::Managed, bytes: all, .. })) => {
                bytes == 0 || bytes as u64 == *all
            }
            _ => false,
        };
        let is_legacy = world.stream(stream)?.kind == Kind::Legacy;
        if !is_whole || ![GLOBAL, HOST, SINGLE].contains(&flags) || (is_legacy && flags == SINGLE) {
            return Err(Code::INVALID_VALUE);
        }
        world.submit(stream, Work::Nothing)
    }

    fn cuStreamBeginCapture_v2(handle: usize, mode: c_int) |call| {
        let mut world = call.world();
        let (stream, mode) = (world.stream_of(handle)?, Mode::of(mode)?);
        world.begin_capture(stream, mode)
    }

    fn cuStreamEndCapture(handle: usize, graph: *mut usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        match world.end_capture(stream) {
            Ok(handle) => put(graph, handle),
            Err(code) => {
                put_optional(graph, 0);
                Err(code)
            }
        }
    }

    fn cuStreamIsCapturing(handle: usize, status: *mut c_int) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        let (answer, _) = world.capture_status(stream)?;
        put(status, answer)
    }

    fn cuStreamUpdateCaptureDependencies(handle: usize, nodes: *const usize, count: usize, flags: c_uint) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        let capture = world.capturing(stream)?.ok_or(Code::ILLEGAL_STATE)?;
        // Nodes have no handles here, so that no list of them can be right.
        match (flags, count) {
            (0, 0) => Ok(()),
            (1, 0) => world.clear_dependencies(capture, stream),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuStreamGetCaptureInfo_v2(
        handle: usize,
        status: *mut c_int,
        id: *mut c_ulonglong,
        graph: *mut usize,
        dependencies: *mut *const usize,
        count: *mut usize,
    ) |call| {
        let mut world = call.world();
        let stream = world.stream_of(handle)?;
        let (answer, number) = world.capture_status(stream)?;
        put(status, answer)?;
        put_optional(id, number);
        put_optional(graph, world.graph_of_capture(number));
        put_optional(dependencies, std::ptr::null());
        put_optional(count, 0);
        Ok(())
    }
}

fn create(world: &mut World, to: *mut usize, flags: c_uint, priority: c_int) -> crate::code::Answer {
    let context = world.current()?;
    if flags & !NON_BLOCKING != 0 || to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let priority = priority.clamp(*PRIORITIES.start(), *PRIORITIES.end());
    let stream =
        world.create_stream(context, Kind::Created { blocking: flags & NON_BLOCKING == 0 }, priority);
    let handle = world.stream(stream)?.handle;
    put(to, handle)
}
