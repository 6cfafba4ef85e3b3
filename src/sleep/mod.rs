//! Memory that sleeps by tag: what vLLM's `CuMemAllocator` does, for any device.
//!
//! A server that shares a GPU lets its model go between two bursts of work and wants it back in a moment,
//! with all addresses that graphs and kernels know. A [`Sleeper`] hands out memory under tags (`weights`,
//! `kv_cache`), and a sleep copies the blocks of some tags to the host and lets the others' contents go; a
//! wake brings back all of it, or some tags.
//!
//! * `sleeper`, `builder`: the tags, the limit that they share, allocation;
//! * `change`: sleep, discard and wake over several tags; `level`: which tags a level keeps;
//! * `tag`: which tag a thread allocates under;
//! * `buffer`: a block; `group`: the blocks of a tag;
//! * `loose`: the same without virtual memory; `chunk`: how large one piece of physical memory is;
//! * `usage`: what is mapped, live and asleep.
//!
//! What it promises:
//!
//! * **All or nothing.** A sleep or a wake that fails leaves every tag as it was, with all contents. (Only if
//!   the device fails a second time, on the way back, a tag is left asleep; nothing is lost then either, and
//!   the next wake works.)
//! * **Addresses stay**, on a device with virtual memory ([`Sleeper::stable_addresses`]). On others (OpenCL,
//!   wgpu) the same calls free memory and allocate it anew: get it from [`SleepBuffer::access`] each time,
//!   and build anew what has it in it.
//! * **It waits by itself** for all work that uses what goes to sleep, and refuses while a region of it
//!   exists.
//! * **Nothing is used asleep**: an allocation under a tag that is asleep and the use of its blocks are
//!   [`Error::Asleep`](crate::Error::Asleep). Dropping them is fine.
//!
//! What vLLM has besides is not here: its registry of backends chooses between Python classes, which is what
//! the type parameter does, and levels keep tags only, for this library knows no module's parameters.
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
//! let cache = sleeper.allocate_tagged("kv_cache", 8 << 20, &stream)?;
//! weights.write(&stream, &[7; 100])?;
//! let report = sleeper.sleep(&["weights"])?;
//! assert_eq!((report.backed_up, report.discarded), (4 << 20, 8 << 20));
//! assert_eq!(sleeper.usage().mapped, 0);
//! sleeper.wake_up(Wake::Tags(&["weights"]))?;
//! let mut bytes = [0; 100];
//! weights.read(&stream, &mut bytes)?;
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
mod group;
mod level;
mod loose;
mod sleeper;
mod tag;
mod usage;

pub use crate::arena::sleep::{BlockState, Offload, SleepReport, SleepState, WakeReport};
pub use buffer::{Access, AccessMut, SleepBuffer};
pub use builder::SleeperBuilder;
pub use callbacks::SleepAllocation;
pub use change::Wake;
pub use level::Level;
pub use sleeper::Sleeper;
pub use tag::{DEFAULT_TAG, DEFERRABLE_TAGS, TagScope};
pub use usage::SleepUsage;
