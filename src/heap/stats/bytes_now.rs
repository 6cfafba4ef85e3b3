//! Bytes of a pool at a moment, and totals of threads' magazines.

use crate::heap::ledger::accounts::Accounts;

/// Totals of idle buffers in threads' magazines, and the bytes requested by live buffers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InMagazines {
    pub(crate) buffers: u64,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
}

/// Bytes of a pool at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BytesNow {
    pub(crate) live: u64,
    pub(crate) requested: u64,
    pub(crate) idle: u64,
}

impl InMagazines {
    /// The bytes of the pool with these accounts.
    pub(crate) fn bytes_now(&self, accounts: &Accounts) -> BytesNow {
        let live = accounts.now.out - self.bytes;
        BytesNow { live, requested: self.requested.min(live), idle: accounts.now.cached + self.bytes }
    }
}
