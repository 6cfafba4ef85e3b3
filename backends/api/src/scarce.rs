//! The resource that a lack of memory is about.

use std::fmt;
use std::sync::Arc;

/// The resource that a request for memory lacked: of [`BackendError::OutOfMemory`](crate::BackendError).
///
/// ```
/// use vrampool_backend::{Scarce, spi::Ledger};
/// let error = Ledger::named("tenants", 1000).reserve(2000).unwrap_err();
/// assert!(matches!(error.scarce(), Some(Scarce::Limit { limit_bytes: 1000, .. })));
/// assert!(error.to_string().contains("the limit of `tenants`"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scarce {
    /// Memory of the device.
    Memory,
    /// A limit that the program set. The device may have more memory.
    #[non_exhaustive]
    Limit {
        /// The name of its owner, a pool for example; empty if it has none.
        of: Arc<str>,
        /// The limit, bytes.
        limit_bytes: u64,
        /// The bytes that were charged to it.
        charged_bytes: u64,
    },
    /// Entries of a table of mappings: that of the process (`vm.max_map_count` on Linux), or an arena's own bound.
    Mappings,
    /// Addresses of the process.
    Addresses,
}

impl Scarce {
    /// Returns a [limit](Self::Limit) of the owner with this name.
    #[must_use]
    pub fn limit(of: &Arc<str>, limit_bytes: u64, charged_bytes: u64) -> Self {
        Self::Limit { of: Arc::clone(of), limit_bytes, charged_bytes }
    }

    /// Returns the action to take; `None` for memory and limits, where it depends on the holders.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Memory | Self::Limit { .. } => None,
            Self::Mappings => Some("drop live buffers, or raise `vm.max_map_count`"),
            Self::Addresses => {
                Some("drop pools, give each a `limit`, or raise the limit on addresses (`ulimit -v`)")
            }
        }
    }
}

impl fmt::Display for Scarce {
    /// The reason, as the end of "is out of memory, because".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("the device is out of memory"),
            Self::Limit { of, limit_bytes, charged_bytes } => {
                f.write_str("the limit")?;
                if !of.is_empty() {
                    write!(f, " of `{}`", of.escape_debug())?;
                }
                write!(f, " is {limit_bytes} bytes, of which {charged_bytes} are in use")
            }
            Self::Mappings => f.write_str("no more memory mappings are permitted"),
            Self::Addresses => f.write_str("the process has no free addresses for them"),
        }
    }
}
