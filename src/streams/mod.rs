//! Order between streams: who uses a block (`users`), and what a captured stream may not be made to do
//! (`order`).

pub(crate) mod order;
pub(crate) mod users;
