//! PyTorch's memory snapshots (`torch.cuda.memory._dump_snapshot`).
//!
//! Of a device's history `alloc` is an allocation and `free_requested` a free: it is when the program gave the memory back, which
//! is what a pool is asked. (`free_completed` is when PyTorch noticed that other streams are done with it, too.) Sizes are what the
//! program asked for, as PyTorch writes them. A history has its last events only: what is live at its end or freed in it and was
//! not allocated in it was there before.

use super::addresses::Addresses;
use super::pickle::{Pickled, Value};
use super::words::Word;
use super::{Limits, MEMORY, MEMORY_PER_EVENT};
use crate::trace::error::Fault;
use crate::trace::event::Event;
use std::io::BufRead;

/// Reads a snapshot: the events of `device`, or of the first that has any. `offset` is where in the pickle it goes wrong.
pub(super) fn read(
    input: impl BufRead,
    device: Option<u32>,
    limits: Limits,
    offset: &mut Option<u64>,
) -> Result<Vec<Event>, Fault> {
    let max_bytes = MEMORY + MEMORY_PER_EVENT * u64::from(limits.max_events);
    let mut at = 0;
    let pickled = Pickled::read(input, max_bytes, &mut at);
    *offset = Some(at);
    let pickled = pickled?;
    // From here on it is what it says that is wrong, not a place in it.
    *offset = None;
    let snapshot = Snapshot::new(&pickled)?;
    let device = match device {
        Some(device) => device as usize,
        None => snapshot.first_device(),
    };
    snapshot.events(device, limits)
}

struct Snapshot<'a> {
    pickled: &'a Pickled,
    traces: &'a [Value],
    segments: &'a [Value],
}

impl<'a> Snapshot<'a> {
    fn new(pickled: &'a Pickled) -> Result<Self, Fault> {
        let list = |key: Word, what| match pickled.get(pickled.root, key) {
            Ok(Some(list)) => pickled.list(list).ok_or(Fault::Shape { what }),
            _ => Ok(&[][..]),
        };
        // Segments alone, as `torch.cuda.memory_snapshot()` gives them.
        if let Some(segments) = pickled.list(pickled.root) {
            return Ok(Self { pickled, traces: &[], segments });
        }
        let traces = list(Word::DeviceTraces, "`device_traces` is a list of lists of events")?;
        let segments = list(Word::Segments, "`segments` is a list of segments")?;
        let is_snapshot = [Word::DeviceTraces, Word::Segments]
            .iter()
            .any(|&key| matches!(pickled.get(pickled.root, key), Ok(Some(_))));
        match is_snapshot {
            true => Ok(Self { pickled, traces, segments }),
            false => {
                Err(Fault::Shape { what: "a snapshot is a dictionary with `device_traces` and `segments`" })
            }
        }
    }

    /// The first that has a history; else the first that has a segment.
    fn first_device(&self) -> usize {
        let has_history = |trace: &Value| self.pickled.list(*trace).is_some_and(|events| !events.is_empty());
        let of_segment = || {
            let devices = self.segments.iter().map(|&segment| self.device(segment));
            devices.filter_map(Result::ok).min()
        };
        self.traces.iter().position(has_history).or_else(of_segment).unwrap_or(0)
    }

    fn events(&self, device: usize, limits: Limits) -> Result<Vec<Event>, Fault> {
        let mut addresses = Addresses::default();
        let too_many = Fault::TooManyEvents { max: limits.max_events };
        let mut has_segments = false;
        if let Some(&trace) = self.traces.get(device) {
            let events = self.pickled.list(trace);
            let events = events.ok_or(Fault::Shape { what: "a device's trace is a list of events" })?;
            let mut began = None;
            for &event in events {
                self.enter(event, &mut addresses, &mut began)?;
                if addresses.count() > u64::from(limits.max_events) {
                    return Err(too_many);
                }
            }
        }
        for &segment in self.segments {
            if self.device(segment)? == device {
                has_segments = true;
                self.enter_segment(segment, &mut addresses)?;
            }
            if addresses.count() > u64::from(limits.max_events) {
                return Err(too_many);
            }
        }
        if !has_segments && device >= self.traces.len().max(1) {
            return Err(Fault::NoDevice { device: device as u64, devices: self.traces.len() as u64 });
        }
        Ok(addresses.into_events())
    }

    fn enter(&self, event: Value, addresses: &mut Addresses, began: &mut Option<i64>) -> Result<(), Fault> {
        let action = self.pickled.get(event, Word::Action);
        let action =
            action.map_err(|()| Fault::Shape { what: "an event is a dictionary with an `action`" })?;
        let is_free = match action {
            Some(Value::Word(Word::Alloc)) => false,
            Some(Value::Word(Word::FreeRequested)) => true,
            // Segments, completions, snapshots, failures, and what later versions may add.
            Some(_) => return Ok(()),
            None => return Err(Fault::Shape { what: "an event is a dictionary with an `action`" }),
        };
        let address =
            self.number(event, Word::Addr)?.ok_or(Fault::Shape { what: "an event's `addr` is a number" })?;
        let size =
            self.size(event, Word::Size)?.ok_or(Fault::Shape { what: "an event's `size` is a number" })?;
        // Older versions have no times.
        let (stream, time) =
            (self.number(event, Word::Stream)?.unwrap_or(0), self.number(event, Word::Time)?);
        let time = time.unwrap_or(0);
        let t_us = u64::try_from(time.saturating_sub(*began.get_or_insert(time))).unwrap_or(0);
        let (address, stream) = (address.cast_unsigned(), stream.cast_unsigned());
        if is_free {
            addresses.free(address, size, stream, t_us);
            return Ok(());
        }
        addresses.allocate(address, size, stream, t_us)
    }

    fn enter_segment(&self, segment: Value, addresses: &mut Addresses) -> Result<(), Fault> {
        const WHAT: Fault = Fault::Shape { what: "a segment is a dictionary with an `address` and `blocks`" };
        let blocks = self.pickled.get(segment, Word::Blocks).map_err(|()| WHAT)?.ok_or(WHAT)?;
        let mut address = self.number(segment, Word::Address)?.ok_or(WHAT)?.cast_unsigned();
        let stream = self.number(segment, Word::Stream)?.unwrap_or(0).cast_unsigned();
        for &block in self.pickled.list(blocks).ok_or(WHAT)? {
            const WHAT: Fault = Fault::Shape { what: "a block is a dictionary with a `size` and a `state`" };
            let state = self.pickled.get(block, Word::State).map_err(|()| WHAT)?;
            let size = self.size(block, Word::Size)?.ok_or(WHAT)?;
            // Older versions have no addresses of blocks.
            address = self.number(block, Word::Address)?.map_or(address, i64::cast_unsigned);
            if state == Some(Value::Word(Word::ActiveAllocated)) {
                addresses.stays(address, self.size(block, Word::RequestedSize)?.unwrap_or(size), stream);
            }
            address = address.wrapping_add(size);
        }
        Ok(())
    }

    fn device(&self, segment: Value) -> Result<usize, Fault> {
        const WHAT: Fault = Fault::Shape { what: "a segment's `device` is a number from 0" };
        match self.number(segment, Word::Device)? {
            Some(device) => usize::try_from(device).map_err(|_| WHAT),
            None => Ok(0),
        }
    }

    fn size(&self, of: Value, key: Word) -> Result<Option<u64>, Fault> {
        let size = self.number(of, key)?.map(u64::try_from).transpose();
        size.map_err(|_| Fault::Shape { what: "a size is not negative" })
    }

    fn number(&self, of: Value, key: Word) -> Result<Option<i64>, Fault> {
        match self.pickled.get(of, key) {
            Ok(Some(Value::Whole(number))) => Ok(Some(number)),
            Ok(None) => Ok(None),
            Ok(Some(_)) => {
                Err(Fault::Shape { what: "addresses, sizes, streams and times are numbers of 64 bits" })
            }
            Err(()) => Err(Fault::Shape { what: "events, segments and blocks are dictionaries" }),
        }
    }
}
