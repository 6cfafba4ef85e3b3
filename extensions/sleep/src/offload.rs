//! The treatment of contents.

/// The treatment of contents when memory goes to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Offload {
    /// Copied to pinned host memory, which the device accesses at its full rate. Pageable memory is used
    /// instead if host and device share memory, or if pinned memory is unsupported or exhausted.
    #[default]
    Pinned,
    /// Copied to pageable host memory: slower, and the system may swap it out.
    Pageable,
    /// Discarded: undefined after waking.
    Discard,
}
