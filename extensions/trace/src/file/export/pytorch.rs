//! Writing PyTorch memory snapshots.

use super::layout::{AddressLayout, Placed, START};
use super::pickle::{Pickler, Plain};
use crate::error::TraceFault;
use crate::file::event::{Op, TraceEvent};
use crate::file::reader::Trace;
use std::io::{self, Write};

/// The segment is a multiple of so many bytes, as PyTorch's large ones are.
const SEGMENT_UNIT: u64 = 2 << 20;

/// No frames.
const FRAMES: (&str, Plain) = ("frames", Plain::EmptyList);

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> Result<(), TraceFault> {
    let layout = AddressLayout::of(trace)?;
    let bytes = layout.bytes.next_multiple_of(SEGMENT_UNIT);
    let settings = [
        ("PYTORCH_CUDA_ALLOC_CONF", Plain::Text("")),
        ("max_split_size", Plain::MinusOne),
        ("expandable_segments", Plain::False),
    ];
    let mut pickle = Pickler::new(out)?;
    pickle.dictionary(&[], |pickle| {
        pickle.text("segments")?;
        pickle.list(|pickle| if bytes > 0 { segment(pickle, bytes, &layout.live) } else { Ok(()) })?;
        pickle.text("device_traces")?;
        pickle.list(|pickle| pickle.list(|pickle| events(pickle, trace, &layout.placed, bytes)))?;
        pickle.text("allocator_settings")?;
        pickle.dictionary(&settings, |_| Ok(()))
    })?;
    Ok(pickle.finish()?)
}

fn events(pickle: &mut Pickler<impl Write>, trace: &Trace, placed: &[Placed], bytes: u64) -> io::Result<()> {
    let mut event = |action, Placed { address, size }, stream, t_us| {
        let fields = [
            ("action", Plain::Text(action)),
            ("addr", Plain::Number(address)),
            ("size", Plain::Number(size)),
            ("stream", Plain::Number(stream)),
            ("time_us", Plain::Number(t_us)),
            FRAMES,
        ];
        pickle.dictionary(&fields, |_| Ok(()))
    };
    if let Some(first) = trace.events().first() {
        event("segment_alloc", Placed { address: START, size: bytes }, 0, first.t_us)?;
    }
    for (&TraceEvent { op, stream, t_us, .. }, &placed) in trace.events().iter().zip(placed) {
        match op {
            Op::Allocate => event("alloc", placed, stream, t_us)?,
            Op::Free => {
                event("free_requested", placed, stream, t_us)?;
                event("free_completed", placed, stream, t_us)?;
            }
        }
    }
    Ok(())
}

fn segment(pickle: &mut Pickler<impl Write>, bytes: u64, live: &[Placed]) -> io::Result<()> {
    let allocated = live.iter().map(|placed| placed.rounded()).sum();
    let requested = live.iter().map(|placed| placed.size).sum();
    let fields = [
        ("device", Plain::Number(0)),
        ("address", Plain::Number(START)),
        ("total_size", Plain::Number(bytes)),
        ("stream", Plain::Number(0)),
        ("allocated_size", Plain::Number(allocated)),
        ("active_size", Plain::Number(allocated)),
        ("requested_size", Plain::Number(requested)),
        ("segment_type", Plain::Text("large")),
        ("segment_pool_id", Plain::Zeros),
        ("is_expandable", Plain::False),
        FRAMES,
    ];
    pickle.dictionary(&fields, |pickle| {
        pickle.text("blocks")?;
        pickle.list(|pickle| {
            let mut end = START;
            for placed in live {
                gap(pickle, end, placed.address)?;
                block(pickle, "active_allocated", [placed.address, placed.rounded(), placed.size])?;
                end = placed.address + placed.rounded();
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
    let fields = [
        ("address", Plain::Number(address)),
        ("size", Plain::Number(size)),
        ("requested_size", Plain::Number(requested)),
        ("state", Plain::Text(state)),
        FRAMES,
    ];
    pickle.dictionary(&fields, |_| Ok(()))
}
