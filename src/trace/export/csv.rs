//! The crate's own format.

use crate::trace::csv::HEADER;
use crate::trace::event::{Event, Op};
use crate::trace::reader::Trace;
use std::io::{self, Write};

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    for &Event { op, id, size, stream, t_us } in trace.events() {
        let op = match op {
            Op::Allocate => 'a',
            Op::Free => 'f',
        };
        writeln!(out, "{op},{id},{size},{stream},{t_us}")?;
    }
    Ok(())
}
