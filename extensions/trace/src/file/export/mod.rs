//! Writing traces, in the formats of other programs too.

mod csv;
mod layout;
mod losses;
mod pickle;
mod pytorch;
mod rmm;

use super::import::Import;
use super::reader::Trace;
use crate::error::format::{Format, without_gz};
use crate::error::place::Place;
use crate::error::{TraceError, TraceFault};
use crate::output::Output;
use flate2::Compression;
use flate2::write::GzEncoder;
pub use losses::Losses;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Options for writing a trace.
///
/// * `csv` has all of a [`Trace`], and a last line with the number of its events and their checksum.
/// * RMM's log and PyTorch's snapshots name addresses, which a trace does not have. They are assigned as an
///   arena assigns them: best fit, in units of 512 bytes, in one range.
/// * RMM's log has times of day; seconds where the trace lasts half a day or longer. All is one thread's.
/// * A snapshot has the trace as the history of device 0, one segment around it that is as large as it needs,
///   and in that what is live at the end. Frames are empty. `torch.cuda._memory_viz` opens it, and so does
///   the visualiser in a browser.
///
/// [`Import`](crate::Import) reads each of them back as the trace it was, but for what
/// [`convert`](Self::convert) returns.
///
/// ```
/// use vrampool_trace::{Export, Format, Import, Trace};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let trace = Trace::parse("op,id,size,stream,t_us\na,0,1000,0,0\nf,0,1000,0,5\n".as_bytes())?;
/// let mut snapshot = Vec::new();
/// Export::new(Format::PyTorch).write(&trace, &mut snapshot)?;
/// assert_eq!(Import::new().parse(&snapshot[..])?.events(), trace.events());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Export {
    format: Format,
}

impl Export {
    /// In this format.
    pub fn new(format: Format) -> Self {
        Self { format }
    }

    /// Writes a file in place of the previous one, gzip-compressed if its name ends with `.gz`.
    ///
    /// # Errors
    /// [`TraceError`]; the previous file is then as it was.
    pub fn save(self, trace: &Trace, path: impl AsRef<Path>) -> Result<(), TraceError> {
        self.save_to(trace, Output::create(path)?)
    }

    /// As [`save`](Self::save), to an output that exists already.
    ///
    /// # Errors
    /// As [`save`](Self::save).
    pub fn save_to(self, trace: &Trace, mut output: Output) -> Result<(), TraceError> {
        self.fill(trace, &mut output)?;
        output.commit()
    }

    /// As [`save_to`](Self::save_to), and reads back what it wrote before it replaces the previous file.
    /// Returns what of the trace the format did not keep.
    ///
    /// # Errors
    /// As [`save`](Self::save), and [`TraceFault::ReadBack`].
    pub fn convert(self, trace: &Trace, mut output: Output) -> Result<Losses, TraceError> {
        self.fill(trace, &mut output)?;
        let losses = output.written().map_err(TraceFault::Read).and_then(|file| {
            let events = u32::try_from(trace.events().len()).unwrap_or(u32::MAX);
            let import = Import::new().format(self.format).max_events(events);
            Losses::of(trace, &import.parse(file).map_err(|error| error.fault)?)
        });
        let fault = |fault| TraceError::of(output.path(), TraceFault::ReadBack(Box::new(fault)));
        let losses = losses.map_err(fault)?;
        output.commit()?;
        Ok(losses)
    }

    fn fill(self, trace: &Trace, output: &mut Output) -> Result<(), TraceError> {
        let written = match without_gz(&output.path().to_string_lossy()) {
            Some(_) => self.write_gzip(trace, &mut *output),
            None => self.write(trace, &mut *output),
        };
        written.map_err(|error| match error.fault {
            TraceFault::Writer(source) => output.fault(source),
            fault => TraceError::of(output.path(), fault),
        })
    }

    /// Writes to `writer`, in pieces of some KiB.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn write(self, trace: &Trace, writer: impl Write) -> Result<(), TraceError> {
        let mut writer = BufWriter::new(writer);
        let written = match self.format {
            Format::Csv => csv::write(trace, &mut writer).map_err(TraceFault::Writer),
            Format::Rmm => rmm::write(trace, &mut writer),
            Format::PyTorch => pytorch::write(trace, &mut writer),
        };
        written.and_then(|()| Ok(writer.flush()?)).map_err(|fault| of(trace, fault))
    }

    /// As [`write`](Self::write), gzip-compressed.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_gzip(self, trace: &Trace, writer: impl Write) -> Result<(), TraceError> {
        let mut encoder = GzEncoder::new(writer, Compression::default());
        self.write(trace, &mut encoder)?;
        encoder.finish().map(drop).map_err(|error| of(trace, error.into()))
    }
}

/// The error of a trace that goes to a caller's writer.
fn of(trace: &Trace, fault: TraceFault) -> TraceError {
    Place::default().error(trace.name(), fault)
}
