//! Reading traces in the formats of other programs.

mod addresses;
mod budget;
mod input;
mod memo;
mod pickle;
mod pickle_value;
mod pytorch;
mod rejected_opcodes;
mod rmm;
mod sites;
mod snapshot_keys;

use super::csv;
use super::lines::{Lines, gzip_fault};
use super::reader::{Trace, UNNAMED, stem};
use crate::error::bounds::{HEADER, NEW_HEADER, RMM_HEADER};
use crate::error::format::Format;
use crate::error::place::Place;
use crate::error::warning::Contradictions;
use crate::error::{TraceError, TraceFault};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Options for reading a trace of any [`Format`], gzip-compressed or not.
///
/// * The format is detected by the content, unless it is [given](Self::format).
/// * Programs that record addresses record from some moment on. What is freed in such a trace, or is live at
///   the end of a snapshot, and was not allocated in it was there before: it becomes an allocation at the
///   start.
/// * Ids are numbered in the order of allocation, streams in the order in which they come; times are
///   microseconds since the first event.
/// * Of PyTorch's snapshots the history of one [device](Self::device) is read, `alloc` as an allocation and
///   `free_requested` as its free: the time at which the program released the memory, as a pool sees it.
///   Where there is no history, what is live in the segments is the trace.
/// * The [site](crate::Origin::site) of an allocation is its innermost frame that is not PyTorch's or Python's own C or
///   C++: `function at file:line`.
/// * What contradicts itself is read as the [`Contradiction`](crate::Contradiction) says, and counted in
///   [`Trace::warnings`]; a [strict](Self::strict) reader fails instead.
/// * A file that ends early is an error. A plain log of RMM's that is cut at the end of a line cannot be distinguished
///   from a whole one, because the format says nowhere how long it is; compressed, it can. A plain trace
///   without this crate's last line is read with a warning.
/// * Nothing that a file says is run, and nothing in it makes reading take more memory than the
///   [limit](Self::max_events) allows: for a snapshot 64 MiB and 512 bytes for each event that it may have, and at most
///   1 MiB and 32 times its decompressed length. What takes more is refused before the memory is taken, and
///   so is what the system has no memory for.
///
/// ```
/// use vrampool_trace::Import;
/// let log = "Thread,Time,Action,Pointer,Size,Stream\n\
///            7,12:00:00.000001,allocate,0x7f0000000000,1000,0x2\n\
///            7,12:00:00.000005,free,0x7f0000000000,1000,0x2\n";
/// let trace = Import::new().parse(log.as_bytes())?;
/// assert_eq!((trace.events().len(), trace.peak_requested(), trace.events()[1].t_us), (2, 1000, 4));
/// # Ok::<(), vrampool_trace::TraceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct Import {
    format: Option<Format>,
    device: Option<u32>,
    max_events: Option<u32>,
    is_strict: bool,
}

impl Import {
    /// The default of [`max_events`](Self::max_events): events that take up to 550 MiB while they are read.
    pub const DEFAULT_EVENTS: u32 = 1 << 22;

    /// Of any format, with at most [`DEFAULT_EVENTS`](Self::DEFAULT_EVENTS).
    pub fn new() -> Self {
        Self::default()
    }

    /// Of this format, whatever the content looks like. RMM's log may then lack its first line.
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// Which device of a snapshot. Default: the first that has a history; without any, the first that has
    /// segments.
    pub fn device(mut self, device: u32) -> Self {
        self.device = Some(device);
        self
    }

    /// Whether a [`Contradiction`](crate::Contradiction) is an error. Default: no; the trace then has
    /// [warnings](Trace::warnings).
    pub fn strict(mut self, is_strict: bool) -> Self {
        self.is_strict = is_strict;
        self
    }

    /// The most events. Default: [`DEFAULT_EVENTS`](Self::DEFAULT_EVENTS).
    ///
    /// ```
    /// use vrampool_trace::{Import, TraceFault};
    /// let csv = "op,id,size,stream,t_us\na,0,1,0,0\na,1,1,0,0\n";
    /// let error = Import::new().max_events(1).parse(csv.as_bytes()).unwrap_err();
    /// assert!(matches!(error.fault, TraceFault::TooManyEvents(1)));
    /// ```
    pub fn max_events(mut self, events: u32) -> Self {
        self.max_events = Some(events);
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
            Err(error) => Err(TraceFault::Open(error)),
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
        self.parse_at(reader, &mut place).map_err(|fault| place.error(UNNAMED, fault))
    }

    fn parse_at(self, reader: impl Read, place: &mut Place) -> Result<Trace, TraceFault> {
        let lines = Lines::new(reader)?;
        let is_gzip = lines.is_gzip;
        self.parse_lines(lines, place).map_err(|fault| match fault {
            TraceFault::Read(error) if is_gzip => gzip_fault(error),
            other => other,
        })
    }

    fn parse_lines(self, mut lines: Lines<'_>, place: &mut Place) -> Result<Trace, TraceFault> {
        let format = match self.format {
            Some(format) => format,
            None => format_of(&lines.head()?)?,
        };
        let contradictions = Contradictions::new(self.is_strict);
        let max_events = self.max_events.unwrap_or(Self::DEFAULT_EVENTS);
        match (format, self.device) {
            (Format::Csv | Format::Rmm, Some(device)) => Err(TraceFault::invalid(format!(
                "device {device} is chosen, but traces as {format} do not name devices; omit the device"
            ))),
            (Format::Csv, None) => Trace::parse_lines(lines, max_events, contradictions, place),
            (Format::Rmm, None) => rmm::read(lines, max_events, contradictions, place),
            (Format::PyTorch, device) => {
                pytorch::read(lines.input, device, max_events, contradictions, place)
            }
        }
    }
}

/// Readers of this crate's own format.
impl Trace {
    /// Reads a file, gzip-compressed or not. The trace is named after it, without directory and endings.
    ///
    /// # Errors
    /// [`TraceError`], which says where and what to do.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        Import::new().format(Format::Csv).read(path)
    }

    /// Reads what `reader` gives, gzip-compressed or not. The trace is named `trace` ([`named`](Self::named)
    /// changes it).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(reader: impl Read) -> Result<Self, TraceError> {
        Import::new().format(Format::Csv).parse(reader)
    }
}

/// The format of what begins so; of a cut file, where it could be any.
fn format_of(head: &[u8]) -> Result<Format, TraceFault> {
    let line = head.split(|&byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
    match head {
        _ if line == HEADER.as_bytes() || line == NEW_HEADER.as_bytes() => Ok(Format::Csv),
        _ if line == RMM_HEADER.as_bytes() => Ok(Format::Rmm),
        [0x80, 0..=5, ..] | [b'}' | b']' | b'(', b'q' | b'r' | b'(' | b'd' | b'l' | b'.', ..] => {
            Ok(Format::PyTorch)
        }
        [] | [0x1f | 0x80 | b'}' | b']' | b'('] => Err(TraceFault::CutOff("in its first bytes")),
        _ if [NEW_HEADER, RMM_HEADER].iter().any(|header| header.as_bytes().starts_with(head)) => {
            Err(TraceFault::CutOff("in its first line"))
        }
        _ => {
            let end = line.len().min(RMM_HEADER.len());
            let found = csv::shown(line.get(..end).unwrap_or_default());
            Err(TraceFault::invalid(format!(
                "`{found}` begins no trace (`{HEADER}`), RMM log (`{RMM_HEADER}`) or PyTorch pickle; name the format if the file is \
                 one of these"
            )))
        }
    }
}
