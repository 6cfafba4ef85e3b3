//! Physical memory of a growing arena's range.
//!
//! * `pages`: mapped memory, and plans for more; `attempt`, `make` and `grow`: map more;
//! * `release` and `retire`: release memory and stitched ranges; `reserve_addresses`: reserves more addresses; `share`:
//!   its bytes of a ledger that several arenas share.

mod attempt;
pub(crate) mod grow;
pub(crate) mod make;
pub(crate) mod pages;
pub(crate) mod release;
pub(crate) mod reserve_addresses;
pub(crate) mod retire;
pub(crate) mod share;
