//! Hooks for [`PoolBuilder::hook`](vrampool::PoolBuilder::hook).
//!
//! * [`CallSites`] counts requests and live bytes by source line (CuPy's `LineProfileHook`);
//! * [`DebugPrint`] writes a line of JSON for each event (CuPy's `DebugPrintHook`);
//! * [`Scoped`] passes events on to hooks that a thread enters and leaves (CuPy's `with hook:`).
//!
//! ```
//! use std::sync::Arc;
//! use vrampool::{Backend, Pool, host::HostDevice};
//! use vrampool_hooks::CallSites;
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

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod call_sites;
mod debug_print;
mod scoped;

pub use call_sites::{CallSite, CallSiteReport, CallSites};
pub use debug_print::DebugPrint;
pub use scoped::{Scope, Scoped};
