//! Size classes learned from a program's requests.
//!
//! A program's sizes recur: a training step requests the same tensors again and again. Classes of exactly
//! these sizes waste no memory. If sizes vary, a few shared classes leave less memory idle than a class per
//! size. [`fit`] minimises the memory that a pool holds: padding plus idle blocks of unused
//! classes. The result is optimal for the recorded requests only. Other sizes get classes of their own, 8 per
//! power of two.
//!
//! The requests are a [`Demand`]. It comes from a recorded trace ([`Trace::demand`](crate::Trace::demand), or the command
//! `cargo vrampool fit TRACE`), or from the program's own first steps:
//!
//! ```
//! use vrampool::{Backend, Pool, SizeClasses, host::HostDevice};
//! use vrampool_trace::{Recorder, fitted};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("step.classes");
//! let device = HostDevice::new();
//! let stream = device.create_stream()?;
//! let step = |pool: &Pool<HostDevice>| -> Result<(), vrampool::Error> {
//!     let weights = pool.allocate(300_000, &stream)?;
//!     let activations = pool.allocate(40_000_000, &stream)?;
//!     # drop((weights, activations));
//!     Ok(())
//! };
//!
//! let recorder = Recorder::new();
//! let first = Pool::builder(&device).hook(recorder.hook()).build()?;
//! step(&first)?;
//! drop(first); // its memory goes back to the device
//!
//! let classes = fitted::fit(&recorder.trace("first steps")?.demand(), fitted::DEFAULT_CLASSES);
//! fitted::save(&classes, &path)?; // for the next run: fitted::load
//! let pool = Pool::builder(&device).size_classes(SizeClasses::Table(classes)).build()?;
//! step(&pool)?;
//! assert_eq!(pool.stats().held_bytes, 300_032 + 40_000_000);
//! # Ok(())
//! # }
//! ```
//!
//! # The file
//!
//! A text file:
//!
//! * The first line is `vrampool fitted classes 2`.
//! * Each further line is a size in bytes, larger than the previous one. Empty lines, and text after a `#`,
//!   are ignored.
//! * The last line is `end COUNT CHECKSUM`: the number of sizes, and the CRC-32 of the sizes in decimal, each
//!   with `\n`, in 8 hexadecimal digits. A cut or altered file is therefore an error.
//! * Each line ends with a line end, including the last.
//!
//! A file written by hand begins with `vrampool fitted classes 1` and has no line
//! `end`. A file has at most [`MAX_CLASSES`] sizes and [`MAX_FILE_BYTES`] bytes, which bounds the memory for untrusted
//! files. A [`TraceError`](crate::TraceError) reports an invalid file with its line.

mod demand;
mod file;
mod fit;
mod peaks;

use crate::error::bounds;
pub use demand::{ClassDemand, Demand};
pub use file::{load, parse, save, text};
pub use fit::fit;

/// The recommended number of classes to fit.
pub const DEFAULT_CLASSES: usize = 64;

/// The largest number of sizes.
pub const MAX_CLASSES: usize = bounds::MAX_CLASSES;

/// The largest size of a file of classes in bytes, with room for comments.
pub const MAX_FILE_BYTES: usize = bounds::MAX_CLASS_FILE_BYTES;
