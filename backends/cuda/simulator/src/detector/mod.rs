//! The race detector: what each operation reads and writes, and what is ordered before what.
//!
//! A stream's operations are numbered; a [`Point`] names one. A [`Clock`] is the set of operations that are
//! ordered before something: for each stream, the last one. Streams, events and graph nodes have clocks,
//! which are joined where the driver orders one after another. The host has one clock for all its threads:
//! once any thread has seen an operation complete (by a synchronisation, or a query that succeeded), whatever
//! is enqueued later is ordered after it. (Threads hand such knowledge to each other in ways that a driver
//! cannot see, so one clock for each would report what is no race.)
//!
//! [`Shadow`] keeps, for each range of bytes, its last write and the reads since. It goes by physical memory,
//! so that two addresses of one page are the same bytes. The check is made when an operation is enqueued: a
//! race is found whether or not the operations happened to run in a good order.

mod clock;
mod shadow;
mod site;

pub(crate) use clock::{Clock, Point};
pub(crate) use shadow::{Shadow, Span};
pub(crate) use site::Site;
