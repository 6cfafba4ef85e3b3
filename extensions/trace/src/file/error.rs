//! Errors of reading a trace.

use super::bounds::{HEADER, MAX_LINE_BYTES, MAX_STREAMS, NEW_HEADER, RMM_HEADER};
use super::contradiction::Contradiction;
use super::format::Format;
use super::position::Position;
use crate::output::shown;
use std::fmt;
use std::io;

/// An error of reading a trace: the position, the fault, and the action to take.
///
/// ```
/// use vrampool_trace::{TraceFault, Trace};
/// let error = Trace::parse("op,id,size,stream,t_us\na,0,-5,0,0\n".as_bytes()).unwrap_err();
/// assert_eq!((error.line, error.field), (Some(2), Some("size")));
/// assert!(matches!(error.fault, TraceFault::Negative { .. }));
/// assert_eq!(
///     error.to_string(),
///     "trace, line 2, field `size`: `-5` is negative; write a whole number from 0 to 18446744073709551615"
/// );
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct TraceError {
    /// The file's path, or the trace's name.
    pub trace: Box<str>,
    /// The line, from 1; `None` when the fault is not one of a line.
    pub line: Option<u64>,
    /// The byte of the decompressed file, from 0; `None` except for damaged pickles, which have no lines.
    pub offset: Option<u64>,
    /// The device of a snapshot that the event belongs to.
    pub device: Option<u32>,
    /// The event in that device's history, from 0; of a trace that is not a file's, the event of the trace.
    pub event: Option<u32>,
    /// The field; `None` when the fault is not one of a field.
    pub field: Option<&'static str>,
    /// The fault.
    pub fault: TraceFault,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&*self.trace))?;
        let &Self { line, offset, device, event, field, .. } = self;
        let place = Position { line, offset, device, event, field };
        if place != Position::default() {
            write!(f, ", {place}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// The cause of the fault; the fault itself is in the text.
impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.fault)
    }
}

/// A fault of a trace. The text of each states the action to take.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceFault {
    /// The file cannot be opened.
    #[error("the file cannot be opened; check the path and its permissions")]
    Open(#[source] io::Error),
    /// The file cannot be read.
    #[error("the file cannot be read; check that it is a regular file and that its disk has no errors")]
    Read(#[source] io::Error),
    /// The compressed data is damaged, or followed by something else.
    #[error("the gzip data is damaged; copy or record it again")]
    Gzip(#[source] io::Error),
    /// The content is of no format.
    #[error(
        "`{found}` begins no trace (`{HEADER}`), RMM log (`{RMM_HEADER}`) or PyTorch pickle; name the format if the file is one of these"
    )]
    #[non_exhaustive]
    Unknown {
        /// The beginning of the file.
        found: String,
    },
    /// The first line is not the header.
    #[error(
        "`{found}` is not the header; the first line must be `{NEW_HEADER}`, or `{HEADER}` in a file without a last line `end`"
    )]
    #[non_exhaustive]
    Header {
        /// The first line.
        found: String,
    },
    /// A line is too long to be an event.
    #[error(
        "the line is longer than {MAX_LINE_BYTES} bytes; write the five fields `{HEADER}` and nothing else"
    )]
    LineTooLong,
    /// A field is not there.
    #[error("the field is missing; write the five fields `{HEADER}`")]
    Missing,
    /// There are more fields than there should be.
    #[error("more fields follow the last one; write only the five fields `{HEADER}`")]
    Extra,
    /// The operation is not one.
    #[error("`{found}` is not an operation; write `a` for an allocation or `f` for a free")]
    #[non_exhaustive]
    UnknownOp {
        /// The value found.
        found: String,
    },
    /// A number is not one.
    #[error("`{found}` is not a number; write a whole number from 0 to {max}", max = u64::MAX)]
    #[non_exhaustive]
    NotANumber {
        /// The value found.
        found: String,
    },
    /// A number is below 0.
    #[error("`{found}` is negative; write a whole number from 0 to {max}", max = u64::MAX)]
    #[non_exhaustive]
    Negative {
        /// The value found.
        found: String,
    },
    /// A number is too large for 64 bits.
    #[error("`{found}` is too large; write a whole number from 0 to {max}", max = u64::MAX)]
    #[non_exhaustive]
    TooLarge {
        /// The value found.
        found: String,
    },
    /// An allocation under an id that is live.
    #[error("{id} is live since line {since}; free it first, or give this allocation an id of its own")]
    #[non_exhaustive]
    StillLive {
        /// The id.
        id: u64,
        /// The line of its allocation.
        since: u64,
    },
    /// An allocation under an id that an earlier one had.
    #[error("{id} named an allocation that was freed in line {freed}; give each allocation an id of its own")]
    #[non_exhaustive]
    UsedBefore {
        /// The id.
        id: u64,
        /// The line of the earlier one's free.
        freed: u64,
    },
    /// A free of an id that no allocation has had.
    #[error("{id} was never allocated; record from the start of the program, or leave this free out")]
    #[non_exhaustive]
    NeverAllocated {
        /// The id.
        id: u64,
    },
    /// A free of an id that was freed before.
    #[error("{id} was already freed in line {freed}; an allocation is freed once, leave this one out")]
    #[non_exhaustive]
    FreedTwice {
        /// The id.
        id: u64,
        /// The line of the first free.
        freed: u64,
    },
    /// The live bytes are too many for 64 bits.
    #[error("{live} live bytes and {size} more exceed 2^64 - 1; check the sizes")]
    #[non_exhaustive]
    TooMuchLive {
        /// Bytes live.
        live: u64,
        /// Bytes asked for.
        size: u64,
    },
    /// More streams than any program has.
    #[error(
        "stream {stream} exceeds the maximum of {MAX_STREAMS} streams; check that the field numbers streams, not events"
    )]
    #[non_exhaustive]
    TooManyStreams {
        /// The stream.
        stream: u64,
    },
    /// More events than were allowed.
    #[error("the trace has more than {max} events; shorten it, or raise `max_events` if you trust it")]
    #[non_exhaustive]
    TooManyEvents {
        /// The limit.
        max: u32,
    },
    /// A field of RMM's log is not what it should be.
    #[error("`{found}` is not {expected}; write the fields of an RMM log, `{RMM_HEADER}`")]
    #[non_exhaustive]
    Unexpected {
        /// The expected value.
        expected: &'static str,
        /// The value found.
        found: String,
    },
    /// An allocation at an address where something is live.
    #[error(
        "an allocation at {address:#x} is already live; record both allocations and frees, of one device alone"
    )]
    #[non_exhaustive]
    AddressLive {
        /// The address.
        address: u64,
    },
    /// A pickle has an instruction that makes or calls something.
    #[error(
        "the pickle has instruction {opcode:#04x} ({name}), which is not for plain data; pickles are never executed. Write \
         the snapshot with `torch.cuda.memory._dump_snapshot`"
    )]
    #[non_exhaustive]
    Opcode {
        /// The instruction.
        opcode: u8,
        /// The name in Python.
        name: &'static str,
    },
    /// A pickle of a protocol that is not known.
    #[error("the pickle has protocol {protocol}; write it with protocol 0 to 5")]
    #[non_exhaustive]
    Protocol {
        /// Its protocol.
        protocol: u8,
    },
    /// The file is cut.
    #[error("the file ends early{}; copy or write it again", if .after.is_empty() { String::new() } else { format!(", {after}") })]
    #[non_exhaustive]
    CutOff {
        /// After what, in words; may be empty.
        after: &'static str,
    },
    /// The content does not match the count or the checksum in its last line.
    #[error(
        "the file is altered: its last line states {counted} events with checksum {sum:#010x}, but it has {found} with \
         {found_sum:#010x}; copy or write it again. To edit it by hand, make the first line `{HEADER}` and remove the last one"
    )]
    #[non_exhaustive]
    Altered {
        /// Events by the last line.
        counted: u64,
        /// Events in the file.
        found: u64,
        /// The checksum by the last line.
        sum: u64,
        /// The checksum of the file.
        found_sum: u64,
    },
    /// Something follows the end.
    #[error("data follows the end of the trace; write each trace to its own file")]
    Trailing,
    /// Something contradicts itself, and the reader is strict.
    #[error("{0}; or read the trace without `strict`")]
    Contradiction(Contradiction),
    /// A pickle's instructions do not fit each other.
    #[error("the pickle is damaged: its instructions contradict each other; copy or write it again")]
    NotPickled,
    /// A snapshot has more in it than was allowed.
    #[error("reading the file needs more than {max} bytes of memory; raise `max_events` if you trust it")]
    #[non_exhaustive]
    TooMuchData {
        /// The limit, bytes.
        max: u64,
    },
    /// A small pickle takes much memory.
    #[error(
        "{read} bytes of the pickle need more than {max} bytes of memory, unlike any PyTorch snapshot; write it with \
         `torch.cuda.memory._dump_snapshot`"
    )]
    #[non_exhaustive]
    Exploding {
        /// Bytes that were read.
        read: u64,
        /// The limit for as many, bytes.
        max: u64,
    },
    /// The system has no memory.
    #[error(
        "reading the file needs {bytes} more bytes of memory than the system can provide; lower `max_events`"
    )]
    #[non_exhaustive]
    OutOfMemory {
        /// Bytes.
        bytes: u64,
    },
    /// A snapshot is not as snapshots are.
    #[error(
        "the file is not a PyTorch memory snapshot: {what}; write it with `torch.cuda.memory._dump_snapshot`"
    )]
    #[non_exhaustive]
    Shape {
        /// The expected value.
        what: &'static str,
    },
    /// A snapshot has nothing of the device.
    #[error(
        "the snapshot has no events of device {device}; choose one of its {devices} devices, counted from 0"
    )]
    #[non_exhaustive]
    NoDevice {
        /// The device.
        device: u64,
        /// The number of devices.
        devices: u64,
    },
    /// A device was chosen in a file that has none.
    #[error("device {device} is chosen, but traces as {format} do not name devices; omit the device")]
    #[non_exhaustive]
    DeviceOfNothing {
        /// The device.
        device: u32,
        /// The format.
        format: Format,
    },
}

impl From<Contradiction> for TraceFault {
    fn from(contradiction: Contradiction) -> Self {
        Self::Contradiction(contradiction)
    }
}

impl TraceFault {
    /// Of so many more items.
    pub(crate) fn out_of_memory<T>(items: usize) -> Self {
        Self::OutOfMemory { bytes: (items as u64).saturating_mul(size_of::<T>() as u64) }
    }
}

impl Position {
    pub(crate) fn error(self, trace: String, fault: TraceFault) -> TraceError {
        let Self { line, offset, device, event, field } = self;
        TraceError { trace: trace.into(), line, offset, device, event, field, fault }
    }
}
