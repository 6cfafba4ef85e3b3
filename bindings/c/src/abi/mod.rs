//! The exported functions, in the order of the header, which documents them.

mod brokers;
mod errors;
mod figures;
mod files;
mod logging;
mod pools;
mod segments;
mod sleep;
mod streams;
mod torch;
mod traces;

pub use crate::broker::BrokerPlan;
pub use crate::broker_run::{Chunk, ChunkCallback, ProgressCallback, RunReport};
pub use crate::figures::Stats;
pub use crate::segments::SegmentCallback;
pub use crate::sleep::{CopyCallback, SleepReport};
pub use brokers::*;
pub use errors::*;
pub use figures::*;
pub use files::*;
pub use logging::*;
pub use pools::*;
pub use segments::*;
pub use sleep::*;
pub use streams::*;
pub use torch::*;
pub use traces::*;
