//! Faults of traces, fitted classes, outputs and replays, each with the action to take.

use super::bounds::{
    HEADER, MAX_CLASS_FILE_BYTES, MAX_CLASSES, MAX_LINE_BYTES, MAX_ORIGINS, MAX_STREAMS, RMM_HEADER,
    UNCOUNTED_CLASS_HEADER,
};
use super::contradiction::Contradiction;
use super::format::Format;
use super::shown::shown;
use std::io;
use std::path::PathBuf;
use vrampool::Error;

/// A fault of a trace, of fitted classes, of an output or of a replay. The text of each states the action to take.
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
        "`{found}` is not the header; the first line must be {headers} in a file without a last line `end`"
    )]
    #[non_exhaustive]
    Header {
        /// The first line, or its beginning.
        found: Box<str>,
        /// The header, and that of a file without a last line `end`.
        headers: &'static str,
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
    /// The number of an origin has no line.
    #[error(
        "no line `o,POOL,SITE` above is number {number}; define the origin first, or omit the sixth field"
    )]
    #[non_exhaustive]
    UnknownOrigin {
        /// The value found.
        number: u64,
    },
    /// There are too many origins.
    #[error("the trace has more than {MAX_ORIGINS} lines `o`; omit the sixth field of the rarest ones")]
    TooManyOrigins,
    /// The operation is not one.
    #[error("`{found}` is not an operation; write `a` for an allocation or `f` for a free")]
    #[non_exhaustive]
    UnknownOp {
        /// The value found.
        found: String,
    },
    /// A field is not an unsigned 64-bit integer.
    #[error("`{found}` is {what}; write a whole number from 0 to {max}", max = u64::MAX)]
    #[non_exhaustive]
    NotANumber {
        /// The value found.
        found: Box<str>,
        /// What it is: not a number, negative, or too large.
        what: &'static str,
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
    /// The last line does not match the content.
    #[error(
        "the file is altered: its last line is `{found}`, but its content requires `{expected}`; copy or write it again. To edit \
         it by hand, make the first line `{}` and remove the last one",
        uncounted(.found)
    )]
    #[non_exhaustive]
    Altered {
        /// The last line.
        found: Box<str>,
        /// The expected line.
        expected: Box<str>,
    },
    /// Something follows the end.
    #[error("data follows the end; write each trace, and each set of classes, to its own file")]
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
    /// A snapshot of a pool is not as pools write it.
    #[error(
        "the file is not a snapshot of a pool; write the whole JSON of `vrampool_snapshot` or `Pool.snapshot`"
    )]
    Snapshot(#[source] io::Error),
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
    /// A file of fitted classes is too long.
    #[error(
        "the file is longer than {MAX_CLASS_FILE_BYTES} bytes; fitted classes are a header and one size per line"
    )]
    FileTooLong,
    /// A size of a class is not a number.
    #[error("`{found}` is not a size; write a whole number of bytes from 1 to {max}", max = u64::MAX)]
    #[non_exhaustive]
    NotASize {
        /// The text, or its beginning.
        found: String,
    },
    /// A class of 0 bytes.
    #[error("a class of 0 bytes is invalid; write a whole number of bytes from 1 to {max}", max = u64::MAX)]
    Zero,
    /// The size of a class is not larger than the previous one.
    #[error("{size} is not larger than {before} in the previous line; write each size once, smallest first")]
    #[non_exhaustive]
    Order {
        /// The size.
        size: u64,
        /// The previous size.
        before: u64,
    },
    /// There are more classes than allowed.
    #[error("the file has more than {MAX_CLASSES} sizes; fit fewer classes")]
    TooManyClasses,
    /// An output cannot be created.
    #[error("the file cannot be created; check the path, its folder and their permissions")]
    Create(#[source] io::Error),
    /// The path of an output is a folder.
    #[error("the path is a folder; name a file in it")]
    Folder,
    /// The output is a file that is read.
    #[error("the output is also the input {}; write to another file", shown(.input))]
    #[non_exhaustive]
    IsInput {
        /// The input.
        input: PathBuf,
    },
    /// An output cannot be written.
    #[error(
        "the file cannot be written; check that its disk has room. The previous file, if any, is unchanged"
    )]
    Write(#[source] io::Error),
    /// The writer of the caller refused a trace.
    #[error("the trace cannot be written; check the writer")]
    Writer(#[from] io::Error),
    /// The written file fails to read back.
    #[error("the written file fails to read back: {0}; check the disk, or write another format")]
    ReadBack(Box<Self>),
    /// More is live at once than there are addresses.
    #[error(
        "event {event}: no addresses are left for {size} bytes: more than {max} bytes are live; write the trace as csv"
    )]
    #[non_exhaustive]
    NoAddress {
        /// The event, from 0.
        event: u64,
        /// Requested bytes.
        size: u64,
        /// Bytes that have addresses.
        max: u64,
    },
    /// The pool refused an event of a replay. The pool is as if the buffers that were live had been dropped.
    #[error("the pool refused it")]
    #[non_exhaustive]
    Pool {
        /// The pass, from 0.
        pass: u32,
        /// The pool's error.
        source: Error,
    },
    /// The work of a replay that writes or verifies memory failed, or could not be enqueued.
    #[error("writing or verifying memory failed")]
    #[non_exhaustive]
    Touch {
        /// The pass, from 0.
        pass: u32,
        /// The cause.
        source: Error,
    },
    /// The device has no stream for each stream of the trace, for each thread of a replay.
    #[error("{streams} streams are needed, but only {made} could be created; replay with fewer threads")]
    #[non_exhaustive]
    Streams {
        /// Streams of all threads.
        streams: u32,
        /// Streams that could be created.
        made: u32,
        /// The device's error.
        source: Error,
    },
    /// A thread of a replay could not be started, or ended early.
    #[error("a replaying thread is missing; replay with fewer threads")]
    Thread(#[source] io::Error),
}

/// The header of a file without such a last line.
fn uncounted(last_line: &str) -> &'static str {
    if last_line.starts_with("end,") { HEADER } else { UNCOUNTED_CLASS_HEADER }
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
