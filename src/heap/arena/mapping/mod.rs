//! Physical memory of a growing arena's range.
//!
//! * `pages`: mapped memory, and plans for more; `attempt`, `make` and `grow`: map more;
//! * `release` and `retire`: release memory and stitched ranges; `reserve_addresses`: reserves more addresses; `share`:
//!   its bytes of a ledger that several arenas share.

mod attempt;
pub(in crate::heap::arena) mod grow;
pub(in crate::heap::arena) mod make;
pub(in crate::heap::arena) mod pages;
pub(in crate::heap::arena) mod release;
pub(in crate::heap::arena) mod reserve_addresses;
pub(in crate::heap::arena) mod retire;
pub(in crate::heap::arena) mod share;
