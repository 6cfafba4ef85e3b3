//! Order between streams, the streams that use a block, and operations that a capture forbids.

pub(crate) mod order;
pub(crate) mod users;
