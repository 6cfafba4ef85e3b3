//! Properties of a trace that a format cannot represent.

use crate::error::TraceFault;
use crate::file::event::Op;
use crate::file::other_devices::OtherDevices;
use crate::file::reader::Trace;
use std::fmt;

/// Losses of a file format: numbers of events that differ from the trace. [`Default`] means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Losses {
    /// Events whose id became another number. Which free is of which allocation is kept.
    pub ids: u64,
    /// Events whose stream became another number. Which events are of one stream is kept.
    pub streams: u64,
    /// Microseconds by which all times are earlier: of the first event, where times count from that.
    pub start_us: u64,
    /// Events whose time became another one beyond that.
    pub times: u64,
    /// Frees whose size became that of their allocation.
    pub free_sizes: u64,
    /// Allocations whose pool and call site became unknown.
    pub origins: u64,
    /// Allocations that the recording of the trace dropped: the format does not have their number.
    pub dropped: u64,
    /// What the file that the trace was read from has of other devices.
    pub other_devices: OtherDevices,
}

impl Losses {
    /// Between a trace and what was read back.
    pub(super) fn of(trace: &Trace, back: &Trace) -> Result<Self, TraceFault> {
        const OTHERS: TraceFault =
            TraceFault::Shape("the events that are read back are those that were written");
        if trace.events().len() != back.events().len() || trace.peak_requested() != back.peak_requested() {
            return Err(OTHERS);
        }
        let first = |trace: &Trace| trace.events().first().map_or(0, |event| event.t_us);
        let start_us = first(trace).saturating_sub(first(back));
        let dropped = trace.dropped().saturating_sub(back.dropped());
        let mut losses = Self { start_us, dropped, other_devices: trace.other_devices(), ..Self::default() };
        for (one, two) in trace.events().iter().zip(back.events()) {
            if one.op != two.op || one.op == Op::Allocate && one.size != two.size {
                return Err(OTHERS);
            }
            losses.ids += u64::from(one.id != two.id);
            losses.streams += u64::from(one.stream != two.stream);
            losses.times += u64::from(two.t_us.checked_add(start_us) != Some(one.t_us));
            losses.free_sizes += u64::from(one.size != two.size);
            losses.origins += u64::from(trace.origin(one) != back.origin(two));
        }
        Ok(losses)
    }
}

/// A line for each thing that is lost; empty where nothing is.
impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { ids, streams, start_us, times, free_sizes, origins, dropped, other_devices } = self;
        let OtherDevices { first, events, segments } = other_devices;
        let mut between = "";
        for (count, what) in [
            (ids, "events with their ids; ids are numbered in the order of allocation"),
            (
                streams,
                "events with their stream numbers; streams are numbered in the order in which they come",
            ),
            (start_us, "microseconds before the first event; times count from that"),
            (times, "events with their times; times before the first event are 0"),
            (free_sizes, "frees with their own sizes; a free has the size of its allocation"),
            (origins, "allocations with their pools and call sites"),
            (dropped, "allocations that the recording dropped; what reads the file does not warn of them"),
        ] {
            if count > 0 {
                write!(f, "{between}not kept: {count} {what}")?;
                between = "\n";
            }
        }
        if other_devices != OtherDevices::default() {
            write!(
                f,
                "{between}not kept: {events} events and {segments} segments of other devices, from device {first} on; "
            )?;
            f.write_str("convert each device on its own, by its number")?;
        }
        Ok(())
    }
}
