//! Recorded allocation traces: what a program asked for and gave back, event by event, recorded from a pool
//! or by other programs, and its replay against a pool.
//!
//! # The format
//!
//! CSV, gzip-compressed or not (told by its content, not by its name), with `\n` or `\r\n` at the end of each
//! line, the last one too. The first line is `op,id,size,stream,t_us,v2`. The last line is
//! `end,EVENTS,CHECKSUM,0,0`: the number of events, and the CRC-32 of their lines, each as if it ended with
//! `\n`. So a file that is cut or altered is an error. Files of earlier versions, and those that other
//! programs write, begin with `op,id,size,stream,t_us` and have no such last line; they are read with a
//! [`TraceWarning`]. Every other line is one event:
//!
//! | field | `a`: an allocation | `f`: a free |
//! |---|---|---|
//! | `id` | names the allocation | which allocation |
//! | `size` | bytes asked for, before any rounding; may be 0 | a number that means nothing |
//! | `stream` | the stream it is for, any number | the stream that used it last |
//! | `t_us` | microseconds since the recording began | likewise |
//!
//! All are whole numbers from 0 to 2⁶⁴ − 1. Times are kept and not judged: recorders with several threads
//! write them out of order. Allocations that are never freed are fine, and so is a trace without events.
//!
//! An id names one allocation. What makes no sense is refused with a [`TraceError`] that names line, field
//! and remedy: an id used a second time, a free of what is not live.
//!
//! # Reading what a stranger sent
//!
//! Lines are read one by one and are at most [`Trace::MAX_LINE_BYTES`] bytes long, events are at most
//! [`Limits::max_events`], streams at most [`Trace::MAX_STREAMS`]; so neither an endless line nor a small file that
//! decompresses without end takes more memory than the events that were allowed, at most 160 bytes each, and
//! 256 bytes each of an RMM log.
//!
//! # Formats of other programs
//!
//! [`Import`] reads RMM's log and PyTorch's memory snapshots too, and tells by the content which it is;
//! [`Export`] writes them. A snapshot is a pickle: plain data alone is read, and whatever a pickle could have
//! run is refused by its name.
//!
//! # Recording
//!
//! A [`Recorder`] is given to pools when they are built; what they serve from then on is a trace.
//!
//! # Replay
//!
//! [`Replay`] drives a [`Pool`](crate::Pool) and measures each [`Pass`]:
//!
//! ```
//! use vrampool::trace::{Replay, Trace};
//! use vrampool::{Pool, host::HostDevice};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let csv = "op,id,size,stream,t_us\na,0,1000,0,0\nf,0,1000,0,5\na,1,900,0,7\n";
//! let trace = Trace::parse(csv.as_bytes())?;
//! assert_eq!((trace.events().len(), trace.peak_requested()), (3, 1000));
//!
//! let pool = Pool::builder(&HostDevice::new()).build()?;
//! let passes = Replay::new(&trace).passes(2).run(&pool)?;
//! assert_eq!(passes[0].hit_rate, 0.5); // the second allocation reuses the first one's memory
//! assert_eq!(passes[1].hit_rate, 1.0);
//! # Ok(())
//! # }
//! ```

mod any_touch;
pub(crate) mod file;
#[cfg(feature = "host")]
mod host_touch;
mod program;
mod replay;
mod report;
mod touch;
mod worker;

pub use crate::recorder::Recorder;
pub use any_touch::AnyTouch;
pub use file::contradiction::{Doubt, TraceWarning};
pub use file::error::{TraceError, TraceFault};
pub use file::event::{Op, TraceEvent};
pub use file::export::{Export, ExportError, Losses};
pub use file::format::Format;
pub use file::import::Import;
pub use file::other_devices::OtherDevices;
pub use file::reader::{Limits, Trace};
pub use file::summary::{SizeRange, Summary};
#[cfg(feature = "host")]
pub use host_touch::HostTouch;
pub use replay::Replay;
pub use report::{Pass, ReplayError};
pub use touch::Touch;
