//! Traces written, in the formats of other programs too.

mod csv;
mod layout;
mod pickle;
mod pytorch;
mod rmm;

use super::format::Format;
use super::reader::Trace;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// How a trace is written.
///
/// * `csv` has all of a [`Trace`], and nothing else.
/// * RMM's log and PyTorch's snapshots name addresses, which a trace does not have. They are given out as an arena would: best
///   fit, in units of 512 bytes, in one range.
/// * RMM's log has times of day: those beyond the first day begin anew, as in RMM's own. All is one thread's.
/// * A snapshot has the trace as the history of device 0, one segment around it that is as large as it needs, and in that what is
///   live at the end. Frames are empty. `torch.cuda._memory_viz` opens it, and so does the visualiser in a browser.
///
/// [`Import`](super::Import) reads each of them back as the trace it was, but for the names of ids and streams, and for the time
/// of the first event, which is 0.
///
/// ```
/// use vrampool::trace::{Export, Format, Import, Trace};
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

/// Why a trace could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The file cannot be made.
    #[error("{}: it cannot be made: {source}; check the path and its permissions", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's explanation.
        source: io::Error,
    },
    /// What was written did not arrive.
    #[error("the trace cannot be written: {0}; check that there is room")]
    Write(#[from] io::Error),
    /// More is live at once than there are addresses.
    #[error("{size} bytes of line {line} have no addresses: more is live than {max} bytes; write it as csv")]
    TooLarge {
        /// The event's line in the trace as csv.
        line: u64,
        /// Bytes asked for.
        size: u64,
        /// Bytes that have addresses.
        max: u64,
    },
}

impl Export {
    /// In this format.
    pub fn new(format: Format) -> Self {
        Self { format }
    }

    /// Writes a file, gzip-compressed if its name ends with `.gz`.
    ///
    /// # Errors
    /// [`ExportError`]; the file is then what was written of it.
    pub fn save(self, trace: &Trace, path: impl AsRef<Path>) -> Result<(), ExportError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|source| ExportError::Create { path: path.into(), source })?;
        match path.extension().is_some_and(|ending| ending == "gz") {
            true => self.write_gzip(trace, file),
            false => self.write(trace, file),
        }
    }

    /// Writes to `writer`, in pieces of some KiB.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn write(self, trace: &Trace, writer: impl Write) -> Result<(), ExportError> {
        let mut writer = BufWriter::new(writer);
        match self.format {
            Format::Csv => csv::write(trace, &mut writer)?,
            Format::Rmm => rmm::write(trace, &mut writer)?,
            Format::PyTorch => pytorch::write(trace, &mut writer)?,
        }
        Ok(writer.flush()?)
    }

    /// As [`write`](Self::write), gzip-compressed.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_gzip(self, trace: &Trace, writer: impl Write) -> Result<(), ExportError> {
        let mut encoder = GzEncoder::new(writer, Compression::default());
        self.write(trace, &mut encoder)?;
        encoder.finish()?;
        Ok(())
    }
}
