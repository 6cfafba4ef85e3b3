//! Bytes, and the claims under which they become slices. The only unsafe code of this backend.
//!
//! [`Bytes`] are a block's own or those of a reservation; nothing reads or writes them but through
//! [`Claims::with`], which first enters every range the caller touches into one table, all or nothing, and
//! waits while any of them meets a range that other code has entered. Taking all ranges in one step under
//! one lock leaves no order in which two callers could wait for each other.
//!
//! Bytes of a reservation are entered twice: their addresses, so that nothing changes what is mapped there,
//! and the physical memory behind them, which other addresses may have too.

mod block;
mod bytes;
mod claims;
#[cfg(target_os = "linux")]
mod map_table;
mod place;
mod ranges;
#[cfg_attr(target_os = "linux", path = "driver/reservation.rs")]
#[cfg_attr(not(target_os = "linux"), path = "driver/no_reservation.rs")]
mod reservation;
mod slabs;
mod slices;

pub(crate) use block::Block;
pub(crate) use bytes::{Bytes, Span};
pub(crate) use claims::Claims;
#[cfg(target_os = "linux")]
pub(crate) use place::{Place, Space};
pub(crate) use reservation::Reservation;
pub(crate) use slabs::{ALIGNMENT, Slabs};
