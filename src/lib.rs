//! A bounded caching buffer pool for device memory.
//!
//! * A [`Pool`] keeps released buffers in buckets of size classes and hands them out again. Idle bytes
//!   ([`PoolBuilder::max_cached_bytes`]), idle buffers in a bucket ([`PoolBuilder::max_buffers_per_bucket`]) and bytes
//!   taken from the device ([`PoolBuilder::limit`]) have caps that hold at every instant, under any number of
//!   threads.
//! * A [`Buffer`] is used through a stream, and waits between streams are inserted on the device: memory is
//!   never handed out while earlier work may still touch it.
//! * A [`Source`] serves misses: the device, an [arena], virtual memory, or the driver's own pool.
//!   [`SizeClasses`] state how requests round up; [`fitted`] learns them.
//! * [`any`] opens a backend that is chosen at run time. A backend of your own implements [`Backend`].
//! * [`sleep`] releases memory by tag and restores it at the same addresses, [`broker`] cuts batches into
//!   chunks that fit a share of the device, [`hooks`] watch requests.
//! * `trace` (feature) records, reads, writes and replays allocation traces; `metrics` (feature) publishes
//!   statistics.
//!
//! ```
//! # #[cfg(feature = "host")]
//! # fn main() -> Result<(), vrampool::Error> {
//! use vrampool::{Backend, Pool, host::HostDevice};
//!
//! let device = HostDevice::new();
//! let stream = device.create_stream()?;
//! let pool = Pool::builder(&device).max_cached_bytes(1 << 30).max_buffers_per_bucket(32).build()?;
//! for step in 0..100u8 {
//!     let mut activations = pool.allocate(40_000, &stream)?; // from the second step on a hit
//!     activations.write(&[step; 40_000], &stream)?; // in order on the stream, and later
//! } // dropped: back in its bucket
//! assert_eq!(pool.stats().misses, 1);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "host"))]
//! # fn main() {}
//! ```
//!
//! A device that is chosen at run time, and a hook:
//!
//! ```
//! # #[cfg(feature = "host")]
//! # fn main() -> Result<(), vrampool::Error> {
//! use std::sync::Arc;
//! use vrampool::{Backend, Pool, any, hooks::CallSites};
//!
//! let device = any::open("auto")?; // or "cuda:1", "host"
//! let stream = device.create_stream()?;
//! let sites = Arc::new(CallSites::new());
//! let pool = Pool::builder(&device).hook(Arc::clone(&sites)).build()?;
//! let weights = pool.allocate(40_000, &stream)?;
//! println!("{}", sites.report()); // each line of code that allocates, most bytes first
//! assert_eq!(sites.report().total().live_bytes, weights.capacity());
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "host"))]
//! # fn main() {}
//! ```
//!
//! # Threads and panics
//!
//! All types at the root, and all handles in the modules, are [`Send`], [`Sync`] and [`Unpin`]. Scopes that
//! belong to a thread ([`hooks::Scope`], [`sleep::TagScope`]) stay there. Errors, statistics and settings are
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
//! | `trace` | `vrampool::trace`: allocation traces recorded, read, written and replayed |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![allow(clippy::vec_box, reason = "a block's record is boxed wherever it is, so that it moves as one word")]

pub mod any;
pub mod arena;
pub mod broker;
mod cache;
mod environment;
mod error;
/// Details of an [`Error`].
pub mod errors {
    pub use crate::error::{Chain, InvalidSetting, InvalidVariable, Owner, WrongDevice, chain};
}
pub mod hooks;
#[cfg(not(model))]
#[doc(hidden)]
pub mod internal;
pub mod output;
mod pool;
pub mod prelude;
#[cfg(feature = "trace")]
mod recorder;
#[cfg(feature = "serde")]
mod serialize;
pub mod sleep;
mod source;
mod staging;
/// Groups of [`PoolStats`].
pub mod stats {
    pub use crate::cache::stats::groups::{
        BucketStats, Caps, Failures, Peaks, Releases, SourceStats, VirtualMemoryStats,
    };
}
mod streams;
mod sync;
#[cfg(feature = "metrics")]
pub mod telemetry;
#[cfg(feature = "trace")]
pub mod trace;

pub use cache::oom_rung::Rung;
pub use cache::served_by::ServedBy;
pub use cache::size_class::SizeClasses;
pub use cache::size_class::fitted;
pub use cache::stats::PoolStats;
pub use error::{Error, Forbidden, OutOfMemory, Shortage};
pub use pool::Pool;
pub use pool::buffer::Buffer;
pub use pool::builder::PoolBuilder;
pub use pool::elements::Element;
pub use pool::private_pool::{GraphBuffer, GraphMemory};
pub use pool::report::PoolReport;
pub use source::Source;
pub use staging::stager::{Stager, Upload};
pub use vrampool_backend as backend;
pub use vrampool_backend::{
    Backend, BackendError, Event, Memory, MemoryKind, Placement, Region, RegionMut, Stream, Usage,
};
#[cfg(feature = "cuda")]
pub use vrampool_cuda as cuda;
#[cfg(feature = "host")]
pub use vrampool_host as host;
#[cfg(feature = "opencl")]
pub use vrampool_opencl as opencl;
#[cfg(feature = "wgpu")]
pub use vrampool_wgpu as wgpu;

#[cfg(all(test, feature = "host"))]
mod thread_safety {
    fn crosses_threads<T: Send + Sync>() {}

    #[test]
    fn what_users_share_between_threads_can_be_shared() {
        crosses_threads::<crate::Pool<crate::host::HostDevice>>();
        crosses_threads::<crate::Buffer<crate::host::HostDevice>>();
        crosses_threads::<crate::Stager<crate::host::HostDevice>>();
        crosses_threads::<crate::arena::DeviceArena<crate::host::HostDevice>>();
        crosses_threads::<crate::arena::ArenaBuffer<crate::host::HostDevice>>();
        crosses_threads::<crate::Pool<crate::any::AnyDevice>>();
        crosses_threads::<crate::sleep::Sleeper<crate::host::HostDevice>>();
        crosses_threads::<crate::sleep::SleepBuffer<crate::host::HostDevice>>();
        crosses_threads::<crate::Error>();
        crosses_threads::<crate::broker::Broker<crate::host::HostDevice>>();
        crosses_threads::<crate::broker::ClientHandle<crate::host::HostDevice>>();
        crosses_threads::<crate::broker::Plan<crate::host::HostDevice>>();
        crosses_threads::<crate::broker::HostArray<crate::host::HostDevice>>();
        crosses_threads::<crate::broker::BrokerError>();
    }
}
