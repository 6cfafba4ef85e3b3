//! A bounded caching buffer pool for device memory.
//!
//! * A [`Pool`] keeps released buffers in buckets of size classes and reuses them. Idle bytes
//!   ([`PoolBuilder::max_cached_bytes`]), idle buffers in a bucket ([`PoolBuilder::max_buffers_per_bucket`]) and bytes
//!   taken from the device ([`PoolBuilder::limit`]) have caps that hold at every instant, under any number of
//!   threads.
//! * A [`Buffer`] is used through a stream, and waits between streams are inserted on the device: memory is
//!   never reused while earlier work may still touch it.
//! * A [`Source`] serves misses: the device, an [arena], virtual memory, or the driver's own pool.
//!   [`SizeClasses`] state how requests round up.
//! * [`any`] opens a backend that is chosen at run time. A backend of your own implements [`Backend`].
//! * [`hooks`] observe requests.
//! * `metrics` (feature) publishes statistics.
//!
//! The crate [`vrampool-sleep`](https://docs.rs/vrampool-sleep) releases memory by tag and restores it at the same addresses.
//! The crate [`vrampool-broker`](https://docs.rs/vrampool-broker) cuts batches into chunks that fit a share of the device.
//! The crate [`vrampool-hooks`](https://docs.rs/vrampool-hooks) counts requests and live bytes by source line.
//! The crate [`vrampool-trace`](https://docs.rs/vrampool-trace) records, reads, writes and replays allocation
//! traces, and fits size classes to them.
//!
//! ```
//! use vrampool::{Backend, Pool, host::HostDevice};
//!
//! let device = HostDevice::new();
//! let stream = device.create_stream()?;
//! let pool = Pool::builder(&device).max_cached_bytes(1 << 30).max_buffers_per_bucket(32).build()?;
//! for step in 0..100u8 {
//!     let mut activations = pool.allocate(40_000, &stream)?; // a hit from the second step on: no call of the device
//!     activations.write(&[step; 40_000], &stream)?; // queued on the stream
//! } // dropped: idle, for the next step
//! assert_eq!(pool.stats().source.allocations, 1);
//! # Ok::<(), vrampool::Error>(())
//! ```
//!
//! A device that is chosen at run time:
//!
//! ```
//! use vrampool::{Backend, Pool, any};
//!
//! let device = any::open("auto")?; // or "cuda:1", "host"
//! let stream = device.create_stream()?;
//! let pool = Pool::new(&device)?;
//! let weights = pool.allocate(40_000, &stream)?;
//! assert_eq!(pool.stats().live_bytes, weights.capacity());
//! # Ok::<(), vrampool::Error>(())
//! ```
//!
//! # Threads and panics
//!
//! All types at the root, and all handles in the modules, are [`Send`], [`Sync`] and [`Unpin`]. Changes
//! of an arena ([`arena::Detaching`]) stay on their thread. Errors, statistics and settings are
//! [`UnwindSafe`](std::panic::UnwindSafe). Pools, buffers, regions and other handles are not, because a backend
//! or a [hook](hooks) may panic in a state of its own. vrampool's state is consistent after a caught panic: use
//! [`AssertUnwindSafe`](std::panic::AssertUnwindSafe) if that of the backend and the hooks is, too.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `host` (default) | `vrampool::host`, the embedded backend |
//! | `cuda` | `vrampool::cuda`, NVIDIA GPUs; the driver is looked for at run time |
//! | `opencl` | `vrampool::opencl`, OpenCL devices; the library is looked for at run time |
//! | `wgpu` | `vrampool::wgpu`, GPUs through Vulkan, or a `wgpu::Device` of the program |
//! | `metrics` | `vrampool::telemetry`: publishes through the `metrics` facade |
//! | `prometheus` | `vrampool::telemetry::Exporter`: an endpoint for Prometheus |
//! | `serde` | `serde::Serialize` of all statistics and reports; durations in nanoseconds |
//! | `tracing` | log messages as events of `tracing`, on threads that have a subscriber; elsewhere they go to `log` |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![allow(clippy::vec_box, reason = "a block's record is boxed wherever it is, so that it moves as one word")]

pub mod any;
pub mod environment;
mod error;
/// Details of an [`Error`].
pub mod errors {
    pub use crate::error::{
        Cause, Chain, InvalidSetting, InvalidVariable, OtherPool, Owner, WrongDevice, chain,
    };
}
pub mod figures;
/// Hooks of pools ([`PoolBuilder::hook`]): calls around each request, each allocation of the driver's, and each free.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use vrampool::hooks::{Hook, HookEvent, Outcome};
/// use vrampool::{Backend, Pool, host::HostDevice};
///
/// /// The source lines of failed requests.
/// #[derive(Debug, Default)]
/// struct Failures(Mutex<Vec<String>>);
///
/// impl Hook for Failures {
///     fn name(&self) -> &str {
///         "failures"
///     }
///
///     fn after_request(&self, event: &HookEvent<'_>) {
///         if event.outcome == Outcome::Failed {
///             self.0.lock().expect("no panic").push(format!("{}: {} bytes", event.site, event.requested_bytes));
///         }
///     }
/// }
///
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let failures = Arc::new(Failures::default());
/// let pool = Pool::builder(&device).limit(1 << 20).hook(Arc::clone(&failures)).build()?;
/// assert!(pool.allocate(2 << 20, &stream).is_err());
/// assert!(failures.0.lock().expect("no panic")[0].ends_with(": 2097152 bytes"));
/// # Ok::<(), vrampool::Error>(())
/// ```
pub mod hooks {
    pub use vrampool_backend::{Holder, Hook, HookCalls, HookEvent, Outcome};
}
mod heap;
#[cfg(not(model))]
#[doc(hidden)]
pub mod internal;
// It ends threads as the system does, which is no public call.
#[cfg(all(test, model))]
#[path = "../tests/model/mod.rs"]
mod model;
mod pool;
pub mod prelude;
/// The table of a pool's [`Settings`], and settings as a pool has them.
pub mod settings {
    pub use crate::pool::{Effective, Origin, Scope, Setting};
}
mod settings_table;
mod source;
/// Groups of [`PoolStats`].
pub mod stats {
    pub use crate::heap::arena::MappingCalls;
    pub use crate::heap::stats::times::{AllocationTimes, DriverTimes, Waits};
    pub use crate::heap::stats::{
        BucketStats, Caps, DeviceErrors, Failures, LastFailures, Peaks, Releases, Rungs, Served, SourceStats,
        VirtualMemoryStats,
    };
}
mod streams;
mod sync;
#[cfg(feature = "metrics")]
pub mod telemetry;

pub use error::{Error, Forbidden, OutOfMemory, Shortage};
pub use heap::arena;
pub use heap::size_class::{SizeClasses, SizeTable};
pub use heap::stats::PoolStats;
pub use pool::{Buffer, Element, Pool, PoolBuilder, PoolReport, Settings};
pub use source::Source;
pub use vrampool_backend as backend;
pub use vrampool_backend::spi::Ledger;
pub use vrampool_backend::{
    Amount, Backend, BackendError, Event, Memory, MemoryKind, Placement, Region, RegionMut, Stream, Usage,
};
#[cfg(feature = "cuda")]
pub use vrampool_cuda as cuda;
#[cfg(feature = "host")]
pub use vrampool_host as host;
#[cfg(feature = "opencl")]
pub use vrampool_opencl as opencl;
#[cfg(feature = "wgpu")]
pub use vrampool_wgpu as wgpu;
