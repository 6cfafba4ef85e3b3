//! Order between streams: who uses a block (`users`), and what a captured stream may not be made to do
//! (`capture`).

pub(crate) mod capture;
pub(crate) mod users;
