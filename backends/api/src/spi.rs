//! For authors of backends and of sub-allocators: what backends and pools are built of beside the contract.
//!
//! Programs that use a pool need none of it, and neither does a minimal backend. Like the contract it follows
//! SemVer.
//!
//! * [`Ledger`], [`Grant`]: limits on bytes, and the bytes that are charged to them;
//! * [`allocate_with_dropped`]: an allocation that waits for memory that was dropped;
//! * [`OpenDevices`]: one core for all handles of a device;
//! * [`find_device`]: a device by its name;
//! * [`Hold`]: keeps memory in place while regions of it exist;
//! * [`Hooks`], [`Occasion`], [`Announced`], [`Ticket`]: the callers' side of [`Hook`](crate::Hook);
//! * [`host_memory`], [`group_memory_left`]: the memory that the system leaves to the process;
//! * [`with_headroom`], [`start_thread`], [`reserve`]: what large allocations leave of it;
//! * [`check_file_size`]: the limit on the size of files;
//! * [`wait_out`]: a wait for a stream, also if the device refuses to wait.

pub use crate::dropped_memory::allocate_with_dropped;
pub use crate::file_size::check_file_size;
pub use crate::headroom::{reserve, start_thread, with_headroom};
pub use crate::hold::Hold;
pub use crate::hook::Ticket;
pub use crate::hooks::{Announced, Hooks, Occasion};
pub use crate::host_memory::{group_memory_left, host_memory};
pub use crate::ledger::{Grant, Ledger};
pub use crate::listing::find_device;
pub use crate::mappings::Mappings;
pub use crate::open_devices::OpenDevices;
pub use crate::wait_out::wait_out;
