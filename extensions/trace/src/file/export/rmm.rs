//! Writing RMM logs.

use super::layout::AddressLayout;
use crate::error::TraceFault;
use crate::error::bounds::RMM_HEADER;
use crate::file::event::Op;
use crate::file::reader::Trace;
use std::io::Write;

/// Microseconds of half a day. Longer gaps between times of day can be read in two ways.
const HALF_A_DAY: u64 = 12 * 3600 * 1_000_000;

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> Result<(), TraceFault> {
    let layout = AddressLayout::of(trace)?;
    writeln!(out, "{RMM_HEADER}")?;
    let is_short = trace.events().iter().all(|event| event.t_us < HALF_A_DAY);
    for (event, placed) in trace.events().iter().zip(layout.placed) {
        let action = match event.op {
            Op::Allocate => "allocate",
            Op::Free => "free",
        };
        let (seconds, micros) = (event.t_us / 1_000_000, event.t_us % 1_000_000);
        let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(out, "0,")?;
        match is_short {
            true => write!(out, "{hours:02}:{minutes:02}:{rest:02}.{micros:06}")?,
            false => write!(out, "{seconds}.{micros:06}")?,
        }
        writeln!(out, ",{action},{:#x},{},{:#x}", placed.address, placed.size, event.stream)?;
    }
    Ok(())
}
