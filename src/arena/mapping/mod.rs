//! Physical memory behind a growing arena's range.
//!
//! * `pages`: what is mapped where, and plans for more; `serve`: a request from what is mapped; `grow`,
//!   `attempt` and `make`: more of it;
//! * `release` and `retire`: memory and stitched ranges given back; `widen`: more addresses; `quota`: what
//!   several arenas have in all.

mod attempt;
pub(in crate::arena) mod grow;
pub(in crate::arena) mod make;
pub(in crate::arena) mod pages;
pub(in crate::arena) mod quota;
pub(in crate::arena) mod release;
pub(in crate::arena) mod retire;
pub(in crate::arena) mod serve;
pub(in crate::arena) mod widen;
