//! Functions of the simulator for tests. No driver has functions of these names.

use crate::boundary::{exports, put, put_optional, put_text, text};
use crate::code::Code;
use crate::world::World;
use std::ffi::{c_char, c_int};

exports! {
    /// Closes a gate before a stream: nothing more of it runs until the gate is opened.
    fn simulator_hold(stream: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(stream)?;
        world.stream(stream)?.gates += 1;
        Ok(())
    }

    /// Opens a gate.
    fn simulator_release(stream: usize) |call| {
        let mut world = call.world();
        let stream = world.stream_of(stream)?;
        let of = world.stream(stream)?;
        of.gates = of.gates.saturating_sub(1);
        world.schedule(stream);
        Ok(())
    }

    /// Has the call after the next `skip` calls that can fail return `code`. 0 takes the plan back.
    fn simulator_fail_next(skip: u64, code: c_int) |call| {
        call.world().faults.fail_next(skip, code);
        Ok(())
    }

    /// Has the `nth` call of `function` from now on, from 1, return `code`.
    fn simulator_fail(function: *const c_char, nth: u64, code: c_int) |call| {
        let function = text(function)?;
        call.world().faults.fail_function(&function, nth, code);
        Ok(())
    }

    /// The function of the last fault of `simulator_fail_next`, or an empty text.
    fn simulator_failed(to: *mut c_char, length: c_int) |call| {
        let name = call.world().faults.last().unwrap_or("");
        put_text(to, length, name)
    }

    /// How many calls that can fail there were.
    fn simulator_calls(to: *mut u64) |call| {
        let calls = call.world().faults.fallible();
        put(to, calls)
    }

    /// How many calls of `function` there were.
    fn simulator_calls_of(function: *const c_char, to: *mut u64) |call| {
        let calls = call.world().faults.calls(&text(function)?);
        put(to, calls)
    }

    /// How many waits for events were asked for.
    fn simulator_waits(to: *mut u64) |call| {
        let waits = call.world().waits;
        put(to, waits)
    }

    /// Has the `nth` wait for an event from now on, from 1, do nothing. 0 takes it back.
    fn simulator_ignore_wait(nth: u64) |call| {
        let mut world = call.world();
        world.settings.ignored_wait = (nth > 0).then_some(world.waits + nth);
        Ok(())
    }

    /// Holds operations up by at most so many microseconds each, at random.
    fn simulator_set_lag(microseconds: u64) |call| {
        call.world().settings.lag = microseconds;
        Ok(())
    }

    /// Sets the granularity of virtual memory.
    fn simulator_set_granularity(bytes: u64) |call| {
        if !bytes.is_power_of_two() {
            return Err(Code::INVALID_VALUE);
        }
        call.world().settings.granularity = bytes;
        Ok(())
    }

    /// How many reports there were, and as much of the first one as there is room for.
    fn simulator_reports(count: *mut u64, to: *mut c_char, length: c_int) |call| {
        let world = call.world();
        put_optional(count, world.reports.len() as u64);
        if length > 0 {
            put_text(to, length, world.reports.first().map_or("", String::as_str))?;
        }
        Ok(())
    }

    fn simulator_clear_reports() |call| {
        call.world().reports.clear();
        Ok(())
    }

    /// From now on reports are counted and nothing else.
    fn simulator_expect_reports() |call| {
        call.world().expected = Some(0);
        Ok(())
    }

    /// Ends that, and says how many there were.
    fn simulator_expected_reports(count: *mut u64) |call| {
        let expected = call.world().expected.take().unwrap_or(0);
        put_optional(count, expected);
        Ok(())
    }

    /// How many kinds of things are not released, and a line for each.
    fn simulator_leaks(count: *mut u64, to: *mut c_char, length: c_int) |call| {
        let mut world = call.world();
        world.collect_exports();
        let leaks = world.leaks();
        put_optional(count, leaks.len() as u64);
        if length > 0 {
            put_text(to, length, &leaks.join("\n"))?;
        }
        Ok(())
    }
}

/// Has what is left at the process's end reported.
pub(super) fn report_leaks_at_exit() {
    extern "C" fn at_exit() {
        let mut world = World::lock();
        world.collect_exports();
        let leaks = world.leaks();
        if !leaks.is_empty() {
            world.report(format!("at the process's end there are left: {}", leaks.join("; ")));
        }
    }
    // SAFETY: the handler takes a lock that no thread keeps, and touches nothing else of the process.
    unsafe { libc::atexit(at_exit) };
}
