//! Timed patterns of allocating and freeing, the same for each allocator; among the allocators, those of a device's driver.

pub(crate) mod allocator;
pub(crate) mod clock;
mod rivals;
pub(crate) mod workload;

pub(crate) use rivals::Rivals;
