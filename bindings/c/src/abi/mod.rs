//! The exported functions that are no one module's below.

mod errors;
mod figures;
mod pools;
mod sleep;
mod streams;

pub use errors::*;
pub use figures::*;
pub use pools::*;
pub use sleep::*;
pub use streams::*;
