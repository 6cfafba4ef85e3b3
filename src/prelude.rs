//! The names that most programs use.
//!
//! Traits of devices come without their names, for their methods alone; generic code imports
//! [`Backend`](crate::Backend) by name. A program's own `Error` takes precedence over the one here.
//!
//! ```
//! use vrampool::host::HostDevice;
//! use vrampool::prelude::*;
//!
//! let device = HostDevice::new();
//! let stream = device.create_stream()?;
//! let pool = Pool::new(&device)?;
//! let numbers = pool.upload(&[1.0f32, 2.0], &stream)?;
//! assert_eq!(numbers.read_vec::<f32>(&stream)?, [1.0, 2.0]);
//! # Ok::<(), Error>(())
//! ```

pub use crate::error::Error;
pub use crate::heap::size_class::SizeClasses;
pub use crate::heap::stats::PoolStats;
pub use crate::pool::Buffer;
pub use crate::pool::Pool;
pub use crate::source::Source;
pub use vrampool_backend::{Backend as _, Event as _, Memory as _, Stream as _};
pub use vrampool_backend::{MemoryKind, Placement, Region, RegionMut};
