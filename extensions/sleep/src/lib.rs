//! Memory that sleeps by tag, like vLLM's `CuMemAllocator`, on devices with virtual memory.
//!
//! A server that shares a GPU releases its model between two bursts of work and restores it quickly, with all
//! addresses that graphs and kernels use. A [`Sleeper`] allocates memory under tags (`weights`, `kv_cache`).
//! A sleep copies the blocks of some tags to the host and discards the contents of the others. A wake
//! restores all tags, or some.
//!
//! A [`SleepArena`] does the same for one arena, [`sleep_all`] and [`wake_all`] for several.
//!
//! * `sleeper`, `shared`, `builder`: tags, their common limit, allocation;
//! * `change`: sleep, discard and wake of tags; `level`: the tags that a level keeps;
//! * `tag`: the tag that a thread allocates under;
//! * `buffer`: a block; `callbacks`: calls for each block;
//! * `several`: sleep and wake of several arenas, all of them or none; `arena`: of one;
//! * `backups`: contents in host memory; `copies`: copies there and back, pipelined over two streams; `host_copy`: a
//!   piece of that memory; `released`: releases it;
//! * `offload`, `progress`, `reports`, `usage`, `error`: parameters, results, figures, errors.
//!
//! Guarantees:
//!
//! * **All or nothing.** A sleep or a wake that fails leaves every tag unchanged, with all contents. (Only if
//!   the device fails again while the change is undone is a tag left asleep. No contents are lost then, and
//!   the next wake works.)
//! * **Stable addresses.** A block keeps its address, asleep and awake. A device without virtual memory
//!   (OpenCL, wgpu) cannot keep it, and is refused when the sleeper is built.
//! * **Synchronisation.** A sleep waits for all work that uses the memory, and fails while a region of it
//!   exists.
//! * **No use while asleep.** Allocation under a sleeping tag and access to its blocks return
//!   [`vrampool::Error::Asleep`]. Dropping them is allowed.
//!
//! Not included from vLLM are its registry of backends, which the type parameter replaces, and levels that
//! know a module's parameters: levels here only choose tags.
//!
//! ```
//! use vrampool::{Backend, host::HostDevice};
//! use vrampool_sleep::{Sleeper, Wake};
//!
//! # fn main() -> Result<(), vrampool_sleep::Error> {
//! let device = HostDevice::new();
//! # if device.virtual_memory().is_none() { return Ok(()) }
//! let stream = device.create_stream()?;
//! let sleeper = Sleeper::new(&device)?;
//! let mut weights = {
//!     let _scope = sleeper.tag("weights");
//!     sleeper.allocate(4 << 20, &stream)?
//! };
//! let cache = sleeper.allocate_tagged(8 << 20, "kv_cache", &stream)?;
//! weights.write(&[7; 100], &stream)?;
//! let report = sleeper.sleep(&["weights"])?;
//! assert_eq!((report.copied_bytes, report.discarded_bytes), (4 << 20, 8 << 20));
//! assert_eq!(sleeper.usage().mapped_bytes, 0);
//! sleeper.wake_up(Wake::Tags(&["weights"]))?;
//! let mut bytes = [0; 100];
//! weights.read(&mut bytes, &stream)?;
//! assert_eq!(bytes, [7; 100]);
//! assert!(cache.on(&stream).is_err(), "still asleep");
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod arena;
mod backups;
mod buffer;
mod builder;
mod callbacks;
mod change;
mod copies;
mod error;
mod host_copy;
mod level;
#[cfg(feature = "metrics")]
mod metrics;
mod offload;
mod progress;
mod released;
mod reports;
mod several;
mod shared;
mod sleeper;
mod tag;
mod usage;

pub use arena::SleepArena;
pub use buffer::SleepBuffer;
pub use builder::SleeperBuilder;
pub use callbacks::SleepAllocation;
pub use change::Wake;
pub use copies::{restore_contents, save_contents};
pub use error::Error;
pub use host_copy::HostCopy;
#[cfg(feature = "metrics")]
pub use metrics::{METRICS, figures_of};
pub use offload::Offload;
pub use progress::{SleepProgress, is_reporting};
pub use reports::{BlockState, SleepReport, SleepState};
pub use several::{sleep_all, wake_all};
pub use sleeper::Sleeper;
pub use tag::{DEFAULT_TAG, DEFERRABLE_TAGS, TagScope, check_tags};
pub use usage::{SleepCounts, SleepUsage, TagUsage};
