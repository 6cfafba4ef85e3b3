//! The grant of a commit for one client.

use crate::id::ArrayId;
use crate::partition::Partition;

/// The part of a grant for one client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The partition of the whole group.
    pub partition: Partition,
    /// Chunks that are on the device at a time, each on its own stream.
    pub streams: usize,
    /// Label and id of the client's arrays; empty if it requested none.
    pub arrays: Vec<(String, ArrayId)>,
}
