//! Order between streams: the streams that use a block (`users`), and operations that a capture forbids
//! (`order`).

pub(crate) mod order;
pub(crate) mod users;
