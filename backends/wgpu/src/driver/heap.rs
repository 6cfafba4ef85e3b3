//! The memory that an interface of wgpu reports.

/// The device's own memory, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heap {
    pub(crate) total: u64,
    /// Where the driver reports it.
    pub(crate) free: Option<u64>,
}
