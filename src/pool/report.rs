//! The memory that a pool holds, and the lines of code that hold its live buffers.

use crate::heap::PoolCore;
use crate::heap::stats::PoolStats;
use crate::pool::settings::{Effective, Origin};
use bytesize::ByteSize;
use std::{fmt, thread};
use vrampool_backend::{Holder, Hook, logging};

/// The memory of a pool, the lines of code that hold live buffers, and settings; as text, a table with the settings
/// that are not the default.
///
/// ```text
/// pool activations: 2 live buffers (80.0 KiB), 64.0 KiB idle; limit = 2GiB (argument)
///     64.0 KiB  1  src/main.rs:12:27
///     16.0 KiB  1  src/main.rs:15:22
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
#[must_use]
pub struct PoolReport {
    /// The pool's name.
    pub pool: String,
    /// Its statistics.
    pub stats: PoolStats,
    /// Its [settings](crate::Pool::settings).
    pub settings: Vec<Effective>,
    /// The source lines that hold memory, most bytes first; empty without a hook that
    /// [counts them](vrampool_backend::Hook::holders), as `CallSites` of the crate `vrampool-hooks` does. A hook of
    /// several pools counts all of them.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_rows"))]
    pub holders: Vec<Holder>,
}

/// Logs the holders of live buffers of a pool that ended, where a hook counts them.
pub(super) fn warn_of_leaks(core: &PoolCore, settings: &[Effective]) {
    if core.hooks.is_empty() || thread::panicking() {
        return;
    }
    let stats = core.stats();
    let holders = if stats.live_buffers == 0 { Vec::new() } else { core.hooks.holders() };
    if !holders.is_empty() {
        let report = PoolReport { pool: core.name.clone(), stats, settings: settings.into(), holders };
        logging::warn!(
            "the last handle is dropped before live buffers (a hook of several pools lists all): {report}"
        );
    }
}

impl fmt::Display for PoolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (live, idle) = (ByteSize(self.stats.live_bytes), ByteSize(self.stats.idle_bytes));
        write!(f, "pool {}: {} live buffers ({live}), {idle} idle", self.pool, self.stats.live_buffers)?;
        for of in self.settings.iter().filter(|of| of.origin != Origin::Default && of.setting.name != "name")
        {
            write!(f, "; {of}")?;
        }
        for Holder { site, buffers, bytes, .. } in &self.holders {
            write!(f, "\n{:>12}  {buffers}  {site}", ByteSize(*bytes).to_string())?;
        }
        Ok(())
    }
}

#[cfg(feature = "serde")]
fn as_rows<S: serde::Serializer>(holders: &[Holder], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(serde::Serialize)]
    struct Row {
        site: String,
        buffers: u64,
        bytes: u64,
    }
    let row =
        |holder: &Holder| Row { site: holder.site.to_string(), buffers: holder.buffers, bytes: holder.bytes };
    serializer.collect_seq(holders.iter().map(row))
}
