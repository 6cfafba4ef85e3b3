//! PyTorch's memory snapshots (`torch.cuda.memory._dump_snapshot`).
//!
//! Of a device's history `alloc` is an allocation and `free_requested` a free: the time at which the program
//! released the memory, as a pool sees it. (`free_completed` is when PyTorch noticed that other
//! streams are done with it, too.) Sizes are what the program asked for, as PyTorch writes them. A history
//! has its last events only: what is live at its end or freed in it and was not allocated in it was there
//! before.

use super::addresses::Addresses;
use super::budget::{Budget, MEMORY, MEMORY_PER_EVENT};
use super::pickle;
use super::pickle_value::{Item, Pickled, Value};
use super::snapshot_keys::SnapshotKey;
use crate::error::TraceFault;
use crate::error::contradiction::Contradiction;
use crate::error::place::Place;
use crate::error::warning::Contradictions;
use crate::file::event::{Op, TraceEvent};
use crate::file::other_devices::OtherDevices;
use crate::file::reader::Trace;
use std::collections::HashMap;
use std::io::BufRead;

/// Memory that reading takes of the bound beside what is counted: the decompressor's, and buffers.
const FIXED: u64 = 1 << 20;

/// Reads a snapshot: the events of `device`, or of the first that has any. `place` is where it goes wrong.
pub(super) fn read(
    input: impl BufRead,
    device: Option<u32>,
    max_events: u32,
    contradictions: Contradictions,
    place: &mut Place,
) -> Result<Trace, TraceFault> {
    let mut budget = Budget::new(MEMORY - FIXED + MEMORY_PER_EVENT * u64::from(max_events));
    let mut at = 0;
    let pickled = pickle::read(input, &mut budget, &mut at);
    place.offset = Some(at);
    let pickled = pickled?;
    // From here on it is what it says that is wrong, not a place in it.
    place.offset = None;
    let snapshot = Snapshot::new(&pickled)?;
    let device = device.unwrap_or_else(|| snapshot.first_device());
    let mut addresses = Addresses::new(place, budget, contradictions, max_events);
    Reading { snapshot, addresses: &mut addresses, first: None, last: None }.enter(device)?;
    let others = snapshot.beside(device)?;
    addresses.budget.taken -= pickled.bytes();
    let Pickled { origins, .. } = pickled;
    let mut trace = addresses.into_trace(origins)?;
    trace.other_devices = others;
    Ok(trace)
}

/// A snapshot while its events are entered.
struct Reading<'a, 'p> {
    snapshot: Snapshot<'a>,
    addresses: &'a mut Addresses<'p>,
    /// The times of the first and the last event of the history so far.
    first: Option<i128>,
    last: Option<i128>,
}

#[derive(Clone, Copy)]
struct Snapshot<'a> {
    pickled: &'a Pickled,
    traces: &'a [Item],
    segments: &'a [Item],
}

impl<'a> Snapshot<'a> {
    fn new(pickled: &'a Pickled) -> Result<Self, TraceFault> {
        let root = pickled.root;
        // Segments alone, as `torch.cuda.memory_snapshot()` gives them.
        if let Some(segments) = pickled.list(root) {
            return Ok(Self { pickled, traces: &[], segments });
        }
        const WHAT: TraceFault =
            TraceFault::Shape("a snapshot is a dictionary with `device_traces` and `segments`");
        let list = |key: SnapshotKey, what| {
            pickled.list(pickled.get(root, key).ok_or(WHAT)?).ok_or(TraceFault::Shape(what))
        };
        Ok(Self {
            pickled,
            traces: list(SnapshotKey::DeviceTraces, "`device_traces` is a list of lists of events")?,
            segments: list(SnapshotKey::Segments, "`segments` is a list of segments")?,
        })
    }

    /// The first that has a history; else the first that has a segment.
    fn first_device(&self) -> u32 {
        let has_history =
            |trace: &Item| self.pickled.list(trace.value).is_some_and(|events| !events.is_empty());
        let of_segment = || self.segments.iter().filter_map(|segment| self.device(segment.value).ok()).min();
        let first = self.traces.iter().position(has_history).and_then(|device| u32::try_from(device).ok());
        first.or_else(of_segment).unwrap_or(0)
    }

    /// Returns the contents for devices other than `device`.
    fn beside(&self, device: u32) -> Result<OtherDevices, TraceFault> {
        let mut others = OtherDevices::default();
        for (trace, number) in self.traces.iter().zip(0..).filter(|&(_, number)| number != device) {
            others.add(number, self.pickled.list(trace.value).map_or(0, |events| events.len() as u64), 0);
        }
        for segment in self.segments {
            let number = self.device(segment.value)?;
            others.add(number, 0, u64::from(number != device));
        }
        Ok(others)
    }

    /// The number of the site in its frames.
    fn site(&self, of: Value) -> u32 {
        match self.pickled.get(of, SnapshotKey::Frames) {
            Some(Value::Site(number)) => number,
            _ => 0,
        }
    }

    fn device(&self, segment: Value) -> Result<u32, TraceFault> {
        const WHAT: TraceFault = TraceFault::Shape("a segment's `device` is a number from 0");
        let Value::Dictionary(_) = segment else {
            return Err(TraceFault::Shape("events, segments and blocks are dictionaries"));
        };
        u32::try_from(self.number(segment, SnapshotKey::Device)?.unwrap_or(0)).map_err(|_| WHAT)
    }

    fn size(&self, of: Value, key: SnapshotKey) -> Result<Option<u64>, TraceFault> {
        let size = self.number(of, key)?.map(u64::try_from).transpose();
        size.map_err(|_| TraceFault::Shape("a size is not negative"))
    }

    /// A number whose sign has no meaning: an address, or a stream's handle.
    fn bits(&self, of: Value, key: SnapshotKey) -> Result<Option<u64>, TraceFault> {
        Ok(self.number(of, key)?.map(|number| number as u64))
    }

    fn number(&self, of: Value, key: SnapshotKey) -> Result<Option<i128>, TraceFault> {
        const WHAT: TraceFault =
            TraceFault::Shape("addresses, sizes, streams and times are numbers of 64 bits");
        self.pickled.get(of, key).map(|value| value.number().ok_or(WHAT)).transpose()
    }
}

impl Reading<'_, '_> {
    /// Enters all that there is of `device`.
    fn enter(&mut self, device: u32) -> Result<(), TraceFault> {
        let Snapshot { pickled, traces, segments } = self.snapshot;
        self.addresses.place.device = Some(device);
        let trace = traces.get(device as usize);
        if let Some(trace) = trace {
            let events =
                pickled.list(trace.value).ok_or(TraceFault::Shape("a device's trace is a list of events"))?;
            for (event, number) in events.iter().zip(0..) {
                self.addresses.place.event = Some(number);
                self.enter_event(event.value)?;
            }
            self.addresses.place.event = None;
        }
        let mut entered = HashMap::new();
        let mut has_segments = false;
        for segment in segments {
            if self.snapshot.device(segment.value)? == device {
                has_segments = true;
                self.enter_segment(segment.value, &mut entered)?;
            }
        }
        self.addresses.budget.dropped_map(&entered);
        if !has_segments && trace.is_none() && (device > 0 || !traces.is_empty()) {
            self.addresses.place.device = None;
            let devices = traces.len();
            return Err(TraceFault::invalid(format!(
                "the snapshot has no events of device {device}; choose one of its {devices} devices, counted from 0"
            )));
        }
        Ok(())
    }

    fn enter_event(&mut self, event: Value) -> Result<(), TraceFault> {
        const WHAT: TraceFault = TraceFault::Shape("an event is a dictionary with an `action`");
        let Self { snapshot, addresses, first, last } = self;
        let action = snapshot.pickled.get(event, SnapshotKey::Action).ok_or(WHAT)?;
        let op = match action {
            Value::Key(SnapshotKey::Alloc) => Op::Allocate,
            Value::Key(SnapshotKey::FreeRequested) => Op::Free,
            Value::Key(
                SnapshotKey::FreeCompleted
                | SnapshotKey::SegmentAlloc
                | SnapshotKey::SegmentFree
                | SnapshotKey::SegmentMap
                | SnapshotKey::SegmentUnmap
                | SnapshotKey::Snapshot
                | SnapshotKey::OutOfMemory
                | SnapshotKey::UserDefined
                | SnapshotKey::WorkspaceSnapshot,
            ) => return Ok(()),
            _ => {
                let text = format_args!("the event has an unknown `action`; it is ignored");
                return addresses.note(Contradiction::UnknownAction, text);
            }
        };
        let address = snapshot
            .bits(event, SnapshotKey::Addr)?
            .ok_or(TraceFault::Shape("an event's `addr` is a number"))?;
        let size = snapshot
            .size(event, SnapshotKey::Size)?
            .ok_or(TraceFault::Shape("an event's `size` is a number"))?;
        // Older versions have no times.
        let stream = snapshot.bits(event, SnapshotKey::Stream)?.unwrap_or(0);
        let time = snapshot.number(event, SnapshotKey::Time)?.unwrap_or(0);
        let microseconds = |time: i128| u64::try_from(time.max(0)).unwrap_or(u64::MAX);
        let by_us = microseconds(last.replace(time).unwrap_or(time) - time);
        addresses.contradictions.note_time(by_us, addresses.place)?;
        // 0 before the first event.
        let t_us = microseconds(time - *first.get_or_insert(time));
        let origin = snapshot.site(event);
        addresses.enter(TraceEvent { op, id: address, size, stream, t_us, origin })
    }

    /// `entered` are the lists of blocks so far.
    fn enter_segment(&mut self, segment: Value, entered: &mut HashMap<u32, ()>) -> Result<(), TraceFault> {
        const WHAT: TraceFault =
            TraceFault::Shape("a segment is a dictionary with an `address` and `blocks`");
        let Self { snapshot, addresses, .. } = self;
        let blocks = snapshot.pickled.get(segment, SnapshotKey::Blocks).ok_or(WHAT)?;
        let mut address = snapshot.bits(segment, SnapshotKey::Address)?.ok_or(WHAT)?;
        let stream = snapshot.bits(segment, SnapshotKey::Stream)?.unwrap_or(0);
        let Value::List(list) = blocks else { return Err(WHAT) };
        // Else so many segments with so many blocks each could be written in few bytes.
        addresses.budget.room_in_map(entered)?;
        if entered.insert(list, ()).is_some() {
            return Err(TraceFault::Shape("each segment has `blocks` of its own"));
        }
        for &Item { value: block, .. } in snapshot.pickled.list(blocks).ok_or(WHAT)? {
            const WHAT: TraceFault = TraceFault::Shape("a block is a dictionary with a `size` and a `state`");
            let state = snapshot.pickled.get(block, SnapshotKey::State);
            let size = snapshot.size(block, SnapshotKey::Size)?.ok_or(WHAT)?;
            // Older versions have no addresses of blocks.
            address = snapshot.bits(block, SnapshotKey::Address)?.unwrap_or(address);
            if state == Some(Value::Key(SnapshotKey::ActiveAllocated)) {
                let size = snapshot.size(block, SnapshotKey::RequestedSize)?.unwrap_or(size);
                let (op, origin) = (Op::Allocate, snapshot.site(block));
                addresses.stays(TraceEvent { op, id: address, size, stream, t_us: 0, origin })?;
            }
            address = address.wrapping_add(size);
        }
        Ok(())
    }
}
