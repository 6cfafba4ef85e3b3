//! Where pinned memory is for the host: a temporary mapping, or a persistent one.

use super::context::RawEvent;
use super::handle::Handle;

/// Where pinned memory is for the host.
#[derive(Debug)]
pub(crate) enum HostSide {
    /// Mapped, and kept so: copies go from and to this address, beside the buffer.
    Mapped(Handle),
    /// A kernel is to use it, so that the mapping is being taken back, for good.
    Unmapping(RawEvent),
    /// Mapped for a moment when the host reads or writes it, like any buffer.
    Unmapped,
}

impl HostSide {
    pub(super) fn is_or_was_mapped(&self) -> bool {
        !matches!(self, Self::Unmapped)
    }
}
