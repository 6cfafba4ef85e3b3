//! Memory that sleeps, as that of vLLM's `CuMemAllocator`, on devices with virtual memory.
//!
//! A server that shares a GPU releases its model between two bursts of work and restores it quickly, with all
//! addresses that graphs and kernels use. The sleep of a [`SleepArena`] copies the contents of its blocks to the host,
//! or discards them, and returns all physical memory to the device. A wake restores it. [`sleep_all`] and [`wake_all`]
//! change several arenas, all of them or none.
//!
//! A tag (`weights`, `kv_cache`) is a [child](vrampool::Pool::child) of a pool over virtual memory. Its arena sleeps,
//! and the limits of the pool bound what is awake. A sleep releases the child's idle memory first, and what is freed
//! asleep goes with its backup at once. [Trim](vrampool::Pool::trim) the pool before a wake that was refused is
//! repeated.
//!
//! * `arena`: sleep and wake of an arena; `several`: of several, all of them or none;
//! * `tag`: tags by name; `usage`: their figures;
//! * `backups`: contents in host memory; `copies`: copies there and back, pipelined over two streams; `host_copy`: a
//!   piece of that memory; `released`: releases it;
//! * `offload`, `progress`, `reports`, `error`: parameters, results, errors.
//!
//! Guarantees:
//!
//! * **All or nothing.** A sleep or a wake that fails leaves every arena unchanged, with all contents. (Only if
//!   the device fails again while the change is undone is an arena left asleep. No contents are lost then, and
//!   the next wake works.)
//! * **Stable addresses.** A block keeps its address, asleep and awake. A pool on a device without virtual memory
//!   (OpenCL, wgpu) has no arena that sleeps.
//! * **Synchronisation.** A sleep waits for all work that uses the memory, and fails while a region of it
//!   exists.
//! * **No use while asleep.** Requests to a sleeping arena or its pool, and access to their blocks, return
//!   [`vrampool::Error::Asleep`]. Dropping them is allowed.
//!
//! ```
//! use std::time::Duration;
//! use vrampool::{Backend, Pool, Source, host::HostDevice};
//! use vrampool_sleep::{Offload, SleepArena, sleep_all, wake_all};
//!
//! # fn main() -> Result<(), vrampool_sleep::Error> {
//! let device = HostDevice::new();
//! # if device.virtual_memory().is_none() { return Ok(()) }
//! let stream = device.create_stream()?;
//! let pool = Pool::builder(&device).source(Source::Virtual).addresses_stay(true).build()?;
//! let (weights, cache) = (pool.child("weights").build()?, pool.child("kv_cache").build()?);
//! let [weights_arena, cache_arena] =
//!     [&weights, &cache].map(|tag| SleepArena::new(tag.arena().expect("its source is virtual").clone()));
//! let mut model = weights.allocate(4 << 20, &stream)?;
//! let block = cache.allocate(8 << 20, &stream)?;
//! model.write(&[7; 100], &stream)?;
//! let arenas = [(&weights_arena, Offload::Pinned), (&cache_arena, Offload::Discard)];
//! let report = sleep_all(arenas, Duration::ZERO, &|_| ())?;
//! assert_eq!((report.copied_bytes, report.discarded_bytes), (4 << 20, 8 << 20));
//! wake_all([&weights_arena], &|_| ())?;
//! let mut bytes = [0; 100];
//! model.read(&mut bytes, &stream)?;
//! assert_eq!(bytes, [7; 100]);
//! assert!(block.on(&stream).is_err(), "still asleep");
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod arena;
mod backups;
mod copies;
mod error;
mod host_copy;
mod offload;
mod progress;
mod released;
mod reports;
mod several;
mod tag;
mod usage;

pub use arena::SleepArena;
pub use copies::{restore_contents, save_contents};
pub use error::Error;
pub use host_copy::HostCopy;
pub use offload::Offload;
pub use progress::{SleepProgress, is_reporting};
pub use reports::SleepReport;
pub use several::{sleep_all, wake_all};
pub use tag::{DEFAULT_TAG, DEFERRABLE_TAGS, Wake, check_tags};
#[cfg(feature = "metrics")]
pub use usage::{METRICS, figures_of};
pub use usage::{SleepCounts, SleepUsage, TagUsage};
