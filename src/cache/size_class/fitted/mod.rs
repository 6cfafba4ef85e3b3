//! Size classes learned from what a program asks for.
//!
//! A program's sizes recur: a training step requests the same tensors again and again. Classes of exactly
//! these sizes waste nothing; where sizes vary, a few shared classes leave less memory idle than one class a
//! size. [`FittedClasses::fit`] minimises the memory that a pool holds, padding and idle blocks of unused
//! classes together. The result is optimal for the recorded requests only. Sizes outside of them get classes
//! of their own, 8 to a power of two.
//!
//! What a program asks for is a [`Demand`]. It comes from a recorded trace (`trace::Trace::demand`, or the
//! command `cargo vrampool fit TRACE`), or from the program's own first steps:
//!
//! ```
//! use std::sync::Arc;
//! use vrampool::hooks::Learner;
//! use vrampool::{Backend, Pool, SizeClasses, host::HostDevice, fitted::FittedClasses};
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
//! let learner = Arc::new(Learner::new());
//! let first = Pool::builder(&device).hook(Arc::clone(&learner)).build()?;
//! step(&first)?;
//! drop(first); // its memory goes back to the device
//!
//! let classes = FittedClasses::fit(&learner.demand(), FittedClasses::DEFAULT_CLASSES);
//! classes.save(&path)?; // for the next run: FittedClasses::load
//! let pool = Pool::builder(&device).size_classes(SizeClasses::Fitted(classes)).build()?;
//! step(&pool)?;
//! assert_eq!(pool.stats().bytes_held, 300_032 + 40_000_000);
//! # Ok(())
//! # }
//! ```
//!
//! # The file
//!
//! Text, for people too. The first line is `vrampool fitted classes 2`, the last one `end COUNT CHECKSUM`:
//! how many sizes there are, and the CRC-32 of these in decimal, each with `\n`, in 8 hexadecimal digits. So
//! a file that is cut or altered is an error. Every line between is a size in bytes, each larger than the one
//! before. Empty lines and what follows a `#` mean nothing. A file that is written by hand, or by an earlier
//! version, begins with `vrampool fitted classes 1` and has no line `end`. Each line ends with a line end,
//! the last one too. At most [`MAX_CLASSES`](FittedClasses::MAX_CLASSES) sizes and [`MAX_FILE`] bytes, so
//! that whatever a stranger sent takes no more memory than that. What is wrong with one is said by a
//! [`FittedError`], with its line.

mod bounds;
mod classes;
mod demand;
mod error;
mod file;
mod fit;
mod peaks;

pub use bounds::MAX_FILE;
pub use classes::FittedClasses;
pub use demand::{ClassDemand, Demand};
pub use error::{Fault, FittedError};
