//! What a commit grants to one client.

use super::ArrayId;
use super::partition::Partition;

/// What was granted to one client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The partition of the whole group.
    pub partition: Partition,
    /// Chunks that are on the device at a time, each on a stream of its own.
    pub streams: usize,
    /// The client's arrays: label and id. None for one that asked for nothing.
    pub arrays: Vec<(String, ArrayId)>,
}
