//! Hooks that come with the crate, for [`PoolBuilder::hook`](crate::PoolBuilder::hook): a pool calls them around each
//! request, each allocation of the driver's, and each free.
//!
//! * [`DebugPrint`] writes a line for each (CuPy's `DebugPrintHook`);
//! * [`CallSites`] counts by the line of code that asks (CuPy's `LineProfileHook`);
//! * [`Learner`] keeps what was asked for, to fit size classes to;
//! * [`Scoped`] passes on to hooks that a thread enters and leaves (CuPy's `with hook:`).
//!
//! ```
//! use std::sync::Arc;
//! use vrampool::{Backend, Pool, hooks::CallSites, host::HostDevice};
//!
//! # fn main() -> Result<(), vrampool::Error> {
//! let device = HostDevice::new();
//! let stream = device.create_stream()?;
//! let sites = Arc::new(CallSites::new());
//! let pool = Pool::builder(&device).hook(Arc::clone(&sites)).build()?;
//! let activations = pool.allocate(40_000, &stream)?;
//! println!("{}", sites.report()); // this file, and the line above
//! assert_eq!(sites.report().total().live_bytes, activations.capacity());
//! # Ok(())
//! # }
//! ```

mod call_sites;
mod debug_print;
mod learner;
mod scoped;

pub use call_sites::{CallSite, CallSiteReport, CallSites};
pub use debug_print::DebugPrint;
pub use learner::Learner;
pub use scoped::{Scope, Scoped};
pub use vrampool_backend::{Holder, Hook, HookEvent, Outcome};
