//! Tracks which streams may access which bytes, and when.
//!
//! * `ranges`: which streams may still use free parts of a range;
//! * `progress`: polls markers, and waits on the host, so that a captured stream can use free memory;
//! * `placement`: which free memory a request gets, so that streams wait for each other rarely;
//!   `clear`: memory for a request that must not wait for some streams.

mod clear;
mod placement;
mod progress;
mod ranges;

pub(super) use {clear::Refused, ranges::UseMap};
