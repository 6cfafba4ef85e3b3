//! Memory that sleeps by tag, like vLLM's `CuMemAllocator`, for any device.
//!
//! A server that shares a GPU releases its model between two bursts of work and restores it quickly, with all
//! addresses that graphs and kernels use. A [`Sleeper`] allocates memory under tags (`weights`, `kv_cache`).
//! A sleep copies the blocks of some tags to the host and discards the contents of the others. A wake
//! restores all tags, or some.
//!
//! * `sleeper`, `core`, `builder`: tags, their common limit, allocation;
//! * `change`: sleep, discard and wake of several tags; `level`: the tags that a level keeps;
//! * `tag`: the tag that a thread allocates under;
//! * `buffer`: a block; `group`: the blocks of a tag;
//! * `separate_blocks`: blocks without virtual memory; `chunk`: the size of one piece of physical memory;
//! * `usage`: mapped, live and sleeping bytes.
//!
//! Guarantees:
//!
//! * **All or nothing.** A sleep or a wake that fails leaves every tag unchanged, with all contents. (Only if
//!   the device fails again while the change is undone is a tag left asleep. No contents are lost then, and
//!   the next wake works.)
//! * **Stable addresses** on a device with virtual memory ([`Sleeper::stable_addresses`]). On others (OpenCL,
//!   wgpu) the same calls free and reallocate memory: get it from [`SleepBuffer::access`] each time, and
//!   rebuild objects that contain it.
//! * **Synchronisation.** A sleep waits for all work that uses the memory, and fails while a region of it
//!   exists.
//! * **No use while asleep.** Allocation under a sleeping tag and access to its blocks return
//!   [`Error::Asleep`](crate::Error::Asleep). Dropping them is allowed.
//!
//! Not included from vLLM are its registry of backends, which the type parameter replaces, and levels that
//! know a module's parameters: levels here only choose tags.
//!
//! ```
//! use vrampool::sleep::{Sleeper, Wake};
//! use vrampool::{Backend, host::HostDevice};
//!
//! # fn main() -> Result<(), vrampool::Error> {
//! let device = HostDevice::new();
//! let stream = device.create_stream()?;
//! let sleeper = Sleeper::new(&device)?;
//! let mut weights = {
//!     let _scope = sleeper.tag("weights");
//!     sleeper.allocate(4 << 20, &stream)?
//! };
//! let cache = sleeper.allocate_tagged(8 << 20, "kv_cache", &stream)?;
//! weights.write(&[7; 100], &stream)?;
//! let report = sleeper.sleep(&["weights"])?;
//! assert_eq!((report.backed_up_bytes, report.discarded_bytes), (4 << 20, 8 << 20));
//! assert_eq!(sleeper.usage().mapped_bytes, 0);
//! sleeper.wake_up(Wake::Tags(&["weights"]))?;
//! let mut bytes = [0; 100];
//! weights.read(&mut bytes, &stream)?;
//! assert_eq!(bytes, [7; 100]);
//! assert!(cache.access().is_err(), "it sleeps on");
//! # Ok(())
//! # }
//! ```

mod buffer;
mod builder;
mod callbacks;
mod change;
mod chunk;
mod core;
mod group;
mod level;
mod separate_blocks;
mod sleeper;
mod tag;
mod usage;

pub use crate::arena::sleep::{BlockState, Offload, SleepReport, SleepState, WakeReport};
pub use buffer::{Access, AccessMut, SleepBuffer};
pub use builder::SleeperBuilder;
pub use callbacks::SleepAllocation;
pub use change::Wake;
pub(crate) use level::Level;
pub use sleeper::Sleeper;
pub use tag::{DEFAULT_TAG, DEFERRABLE_TAGS, TagScope};
pub use usage::SleepUsage;
