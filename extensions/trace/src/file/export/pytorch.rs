//! Writing PyTorch memory snapshots.

use super::layout::{AddressLayout, Placed, START, UNIT};
use super::pickle::Pickler;
use crate::error::TraceFault;
use crate::file::event::Op;
use crate::file::reader::Trace;
use std::io::{self, Write};

/// The segment is a multiple of so many bytes, as PyTorch's large ones are.
const SEGMENT_UNIT: u64 = 2 << 20;

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> Result<(), TraceFault> {
    // The segment is as large as it gets, so it is known only behind the last event.
    let (bytes, live) = AddressLayout::of(trace)?;
    let bytes = bytes.next_multiple_of(SEGMENT_UNIT);
    let mut pickle = Pickler::new(out)?;
    pickle.dictionary::<TraceFault>(|pickle| {
        pickle.text("segments")?;
        pickle.list::<TraceFault>(
            |pickle| if bytes > 0 { Ok(segment(pickle, bytes, &live)?) } else { Ok(()) },
        )?;
        pickle.text("device_traces")?;
        pickle.list(|pickle| pickle.list(|pickle| events(pickle, trace, bytes)))?;
        pickle.text("allocator_settings")?;
        pickle.dictionary(|pickle| {
            pickle.text("PYTORCH_CUDA_ALLOC_CONF")?;
            pickle.text("")?;
            pickle.text("max_split_size")?;
            pickle.minus_one()?;
            pickle.text("expandable_segments")?;
            Ok::<(), TraceFault>(pickle.truth(false)?)
        })
    })?;
    Ok(pickle.finish()?)
}

fn events(pickle: &mut Pickler<impl Write>, trace: &Trace, bytes: u64) -> Result<(), TraceFault> {
    let mut layout = AddressLayout::new()?;
    if let Some(first) = trace.events().first() {
        let segment = Placed { address: START, size: bytes, stream: 0 };
        event(pickle, "segment_alloc", segment, first.t_us)?;
    }
    for (traced, number) in trace.events().iter().zip(0..) {
        let placed = Placed { stream: traced.stream, ..layout.place(traced, number)? };
        match traced.op {
            Op::Allocate => event(pickle, "alloc", placed, traced.t_us)?,
            Op::Free => {
                event(pickle, "free_requested", placed, traced.t_us)?;
                event(pickle, "free_completed", placed, traced.t_us)?;
            }
        }
    }
    Ok(())
}

fn event(
    pickle: &mut Pickler<impl Write>,
    action: &'static str,
    placed: Placed,
    t_us: u64,
) -> io::Result<()> {
    pickle.dictionary(|pickle| {
        pickle.text("action")?;
        pickle.text(action)?;
        let numbers =
            [("addr", placed.address), ("size", placed.size), ("stream", placed.stream), ("time_us", t_us)];
        fields(pickle, numbers)?;
        frames(pickle)
    })
}

fn segment(pickle: &mut Pickler<impl Write>, bytes: u64, live: &[Placed]) -> io::Result<()> {
    let rounded = |placed: &Placed| placed.size.max(1).next_multiple_of(UNIT);
    let allocated = live.iter().map(rounded).sum();
    let requested = live.iter().map(|placed| placed.size).sum();
    pickle.dictionary(|pickle| {
        fields(pickle, [("device", 0), ("address", START), ("total_size", bytes), ("stream", 0)])?;
        fields(
            pickle,
            [("allocated_size", allocated), ("active_size", allocated), ("requested_size", requested)],
        )?;
        pickle.text("segment_type")?;
        pickle.text("large")?;
        pickle.text("segment_pool_id")?;
        pickle.number(0)?;
        pickle.number(0)?;
        pickle.pair()?;
        pickle.text("is_expandable")?;
        pickle.truth(false)?;
        frames(pickle)?;
        pickle.text("blocks")?;
        pickle.list(|pickle| {
            let mut end = START;
            for placed in live {
                gap(pickle, end, placed.address)?;
                block(pickle, "active_allocated", [placed.address, rounded(placed), placed.size])?;
                end = placed.address + rounded(placed);
            }
            gap(pickle, end, START + bytes)
        })
    })
}

fn gap(pickle: &mut Pickler<impl Write>, start: u64, end: u64) -> io::Result<()> {
    if start == end { Ok(()) } else { block(pickle, "inactive", [start, end - start, 0]) }
}

fn block(
    pickle: &mut Pickler<impl Write>,
    state: &'static str,
    [address, size, requested]: [u64; 3],
) -> io::Result<()> {
    pickle.dictionary(|pickle| {
        fields(pickle, [("address", address), ("size", size), ("requested_size", requested)])?;
        pickle.text("state")?;
        pickle.text(state)?;
        frames(pickle)
    })
}

fn fields<const N: usize>(
    pickle: &mut Pickler<impl Write>,
    fields: [(&'static str, u64); N],
) -> io::Result<()> {
    fields.into_iter().try_for_each(|(name, number)| {
        pickle.text(name)?;
        pickle.number(number)
    })
}

fn frames(pickle: &mut Pickler<impl Write>) -> io::Result<()> {
    pickle.text("frames")?;
    pickle.empty_list()
}
