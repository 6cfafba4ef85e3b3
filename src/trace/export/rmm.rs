//! RMM's log.

use super::ExportError;
use super::layout::Layout;
use crate::trace::event::Op;
use crate::trace::import::RMM_HEADER;
use crate::trace::reader::Trace;
use std::io::Write;

/// Seconds of a day.
const DAY: u64 = 24 * 3600;

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> Result<(), ExportError> {
    let mut layout = Layout::new()?;
    writeln!(out, "{RMM_HEADER}")?;
    for (event, line) in trace.events().iter().zip(2..) {
        let placed = layout.place(event, line)?;
        let action = match event.op {
            Op::Allocate => "allocate",
            Op::Free => "free",
        };
        let (seconds, micros) = (event.t_us / 1_000_000 % DAY, event.t_us % 1_000_000);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        writeln!(
            out,
            "0,{hours:02}:{minutes:02}:{seconds:02}.{micros:06},{action},{:#x},{},{:#x}",
            placed.address, placed.size, event.stream
        )?;
    }
    Ok(())
}
