//! Allocation traces for [`vrampool`]: the requests and frees of a program, event by event.
//!
//! * A [`Recorder`] records pools that have its [hook](Recorder::hook).
//! * [`Import`] and [`Export`] read and write traces, also those of RMM and PyTorch.
//! * [`Replay`] drives a [`Pool`](vrampool::Pool) by a trace and measures each [`Pass`].
//! * [`fitted`] chooses the size classes with which a pool holds the least memory.
//! * [`plot`] draws a trace, also of a live pool, as one HTML file or as SVG.
//! * [`output`] replaces files as a whole or not at all.
//!
//! ```
//! use vrampool::{Pool, host::HostDevice};
//! use vrampool_trace::{Replay, Trace};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let csv = "op,id,size,stream,t_us\na,0,1000,0,0\nf,0,1000,0,5\na,1,900,0,7\n";
//! let trace = Trace::parse(csv.as_bytes())?;
//! assert_eq!((trace.events().len(), trace.peak_requested()), (3, 1000));
//!
//! let pool = Pool::builder(&HostDevice::new()).build()?;
//! let passes = Replay::new(&trace).passes(2).run(&pool)?;
//! assert_eq!(passes[0].hit_rate, 0.5); // the second allocation reuses the memory of the first one
//! assert_eq!(passes[1].hit_rate, 1.0);
//! # Ok(())
//! # }
//! ```
//!
//! # The format
//!
//! CSV, gzip-compressed or not, which is detected by the content and not by the name. Each line ends with `\n` or
//! `\r\n`, also the last one. The first line is `op,id,size,stream,t_us,v2`. The last line is
//! `end,EVENTS,CHECKSUM,DROPPED,DROPPED`: the number of events, the CRC-32 of their lines, each as if it ended with
//! `\n`, and the number of allocations that the recording dropped ([`Trace::dropped`]). A file that is cut or altered
//! is therefore an error. Files of other programs may begin with `op,id,size,stream,t_us` and have no such last line;
//! they are read with a [`TraceWarning`]. Every other line is one event:
//!
//! | field | `a`: an allocation | `f`: a free |
//! |---|---|---|
//! | `id` | names the allocation | names the freed allocation |
//! | `size` | requested bytes, before rounding; may be 0 | ignored |
//! | `stream` | the stream of the request, any number | the stream that used the memory last |
//! | `t_us` | microseconds since the recording began | microseconds since the recording began |
//!
//! An allocation may have a sixth field: the number of its [`Origin`], from 1. A line `o,POOL,SITE` defines the next
//! number: the name of the pool or child, without a comma, and the line of code that requested the memory. Either may
//! be empty.
//!
//! All fields are whole numbers from 0 to 2⁶⁴ − 1. Times need not rise, because recorders with several threads
//! write them out of order. Allocations may be live at the end, and a trace may have no events.
//!
//! An id names one allocation. An id that is used twice, and a free of an allocation that is not live, are a
//! [`TraceError`] with the line, the field and the action to take.
//!
//! # Untrusted files
//!
//! Memory is bounded: a line has at most [`Trace::MAX_LINE_BYTES`] bytes, a trace [`Import::max_events`] events,
//! [`Trace::MAX_STREAMS`] streams and 65,535 origins. An event takes at most 160 bytes, an event of an RMM log 256. A
//! small file that decompresses without end is therefore an error. A snapshot of PyTorch is a pickle, which is read as
//! plain data: any other instruction is an error that names it.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod error;
mod file;
pub mod fitted;
pub mod output;
pub mod plot;
mod program;
mod recorder;
mod replay;
mod report;
mod touch;
mod worker;

pub use error::contradiction::Contradiction;
pub use error::format::{Format, UnknownFormat};
pub use error::place::Place;
pub use error::warning::TraceWarning;
pub use error::{TraceError, TraceFault};
pub use file::event::{Op, TraceEvent};
pub use file::export::{Export, Losses};
pub use file::import::Import;
pub use file::origin::Origin;
pub use file::other_devices::OtherDevices;
pub use file::reader::Trace;
pub use file::summary::{SizeRange, Summary};
pub use recorder::{Recorder, RecorderHook};
pub use replay::Replay;
pub use report::Pass;
pub use touch::Touch;
