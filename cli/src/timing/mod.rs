//! Timed patterns of allocating and freeing, the same for each allocator, those of a device's driver
//! included.

pub(crate) mod allocator;
pub(crate) mod clock;
mod rivals;
pub(crate) mod workload;

pub(crate) use rivals::Rivals;
