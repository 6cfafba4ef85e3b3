//! The CSV format of this crate.

use crate::error::bounds::NEW_HEADER;
use crate::file::event::{Op, TraceEvent};
use crate::file::origin::Origin;
use crate::file::reader::Trace;
use flate2::Crc;
use std::io::{self, Write};

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{NEW_HEADER}")?;
    let (mut sum, mut line) = (Crc::new(), Vec::new());
    for Origin { pool, site } in trace.origins() {
        line.clear();
        writeln!(line, "o,{pool},{site}")?;
        sum.update(&line);
        out.write_all(&line)?;
    }
    for &TraceEvent { op, id, size, stream, t_us, origin } in trace.events() {
        let op = match op {
            Op::Allocate => 'a',
            Op::Free => 'f',
        };
        line.clear();
        write!(line, "{op},{id},{size},{stream},{t_us}")?;
        if origin > 0 {
            write!(line, ",{origin}")?;
        }
        line.push(b'\n');
        sum.update(&line);
        out.write_all(&line)?;
    }
    // So that a cut is always noticed.
    let dropped = trace.dropped();
    writeln!(out, "end,{},{},{dropped},{dropped}", trace.events().len(), sum.sum())
}
