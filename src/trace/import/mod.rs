//! Traces in the formats of other programs, read.

mod addresses;
mod input;
mod pickle;
mod pytorch;
mod rmm;
mod words;

use super::csv::{self, HEADER};
use super::error::{Fault, TraceError};
use super::format::Format;
use super::lines::Lines;
use super::reader::{Limits, Trace, UNNAMED, stem};
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub(crate) use rmm::HEADER as RMM_HEADER;

/// Bytes that reading a snapshot may take: for what surrounds its events, and for each event that it may have. (PyTorch's own
/// snapshots take about 300.)
const MEMORY: u64 = 64 << 20;
const MEMORY_PER_EVENT: u64 = 512;

/// How a trace is read that may be of any [`Format`], gzip-compressed or not.
///
/// * The format is told by the content, unless it is [given](Self::format).
/// * Programs that record addresses record from some moment on. What is freed in such a trace, or is live at the end of a
///   snapshot, and was not allocated in it was there before: it becomes an allocation at the start.
/// * Ids are numbered in the order of allocation, streams in the order in which they come; times are microseconds since the first
///   event.
/// * Of PyTorch's snapshots the history of one [device](Self::device) is read, `alloc` as an allocation and `free_requested` as
///   its free: when the program gave the memory back, which is what a pool is asked. Where there is no history, what is live in
///   the segments is the trace.
/// * Nothing that a file says is run, and nothing in it makes reading take more than the [limits](Limits) allow: for a snapshot
///   64 MiB and 512 bytes for each event that it may have.
///
/// ```
/// use vrampool::trace::Import;
/// let log = "Thread,Time,Action,Pointer,Size,Stream\n\
///            7,12:00:00.000001,allocate,0x7f0000000000,1000,0x2\n\
///            7,12:00:00.000005,free,0x7f0000000000,1000,0x2\n";
/// let trace = Import::new().parse(log.as_bytes())?;
/// assert_eq!((trace.events().len(), trace.peak_requested(), trace.events()[1].t_us), (2, 1000, 4));
/// # Ok::<(), vrampool::trace::TraceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct Import {
    format: Option<Format>,
    device: Option<u32>,
    limits: Limits,
}

/// Where it went wrong.
#[derive(Default)]
struct Place {
    line: Option<u64>,
    offset: Option<u64>,
    field: Option<&'static str>,
}

impl Import {
    /// Of any format, within the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Of this format, whatever the content looks like. RMM's log may then lack its first line.
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// Which device of a snapshot. Default: the first that has a history; without any, the first that has segments.
    pub fn device(mut self, device: u32) -> Self {
        self.device = Some(device);
        self
    }

    /// How much the trace may have.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Reads a file. The trace is named after it, without directory and endings.
    ///
    /// # Errors
    /// [`TraceError`], which says where and what to do.
    pub fn read(self, path: impl AsRef<Path>) -> Result<Trace, TraceError> {
        let (path, mut place) = (path.as_ref(), Place::default());
        let trace = match File::open(path) {
            Ok(file) => self.parse_at(file, &mut place),
            Err(error) => Err(Fault::Open(error)),
        };
        let trace = trace.map_err(|fault| place.error(path.display().to_string(), fault))?;
        Ok(trace.named(stem(path)))
    }

    /// Reads what `reader` gives. The trace is named `trace` ([`Trace::named`] changes it).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(self, reader: impl Read) -> Result<Trace, TraceError> {
        let mut place = Place::default();
        self.parse_at(reader, &mut place).map_err(|fault| place.error(UNNAMED.into(), fault))
    }

    fn parse_at(self, reader: impl Read, place: &mut Place) -> Result<Trace, Fault> {
        let mut lines = Lines::new(reader)?;
        let format = match self.format {
            Some(format) => format,
            None => format_of(&lines.head()?)?,
        };
        let mut at = |(field, fault)| {
            place.field = field;
            fault
        };
        let events = match format {
            Format::Csv => {
                let mut line = place.line;
                let trace = Trace::parse_lines(lines, self.limits, &mut line).map_err(&mut at);
                place.line = line;
                return trace;
            }
            Format::Rmm => {
                let mut line = 0;
                let events = rmm::read(&mut lines, self.limits, &mut line).map_err(&mut at);
                if events.is_err() {
                    place.line = Some(line);
                }
                events?
            }
            Format::PyTorch => {
                let (input, read_fault) = lines.into_input();
                let events = pytorch::read(input, self.device, self.limits, &mut place.offset);
                events.map_err(|fault| match fault {
                    Fault::Read(error) => read_fault(error),
                    other => other,
                })?
            }
        };
        Trace::assemble(events).map_err(|(field, fault)| {
            place.field = Some(field);
            fault
        })
    }
}

impl Place {
    fn error(self, trace: String, fault: Fault) -> TraceError {
        let Self { line, offset, field } = self;
        TraceError { trace, line, offset, field, fault }
    }
}

/// What something that begins so is.
fn format_of(head: &[u8]) -> Result<Format, Fault> {
    let line = head.split(|&byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
    match head {
        _ if line == HEADER.as_bytes() => Ok(Format::Csv),
        _ if line == RMM_HEADER.as_bytes() => Ok(Format::Rmm),
        [0x80, 0..=5, ..] | [b'}' | b']' | b'(', b'q' | b'r' | b'(' | b'd' | b'l' | b'.', ..] => {
            Ok(Format::PyTorch)
        }
        _ => {
            let end = line.len().min(RMM_HEADER.len());
            Err(Fault::Unknown { found: csv::shown(line.get(..end).unwrap_or_default()) })
        }
    }
}
