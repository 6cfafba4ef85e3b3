#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod abi;
mod blocks;
#[allow(unsafe_code, reason = "where pointers of C's become references and back; every block is argued")]
pub mod boundary;
mod broker;
mod broker_run;
mod captured;
mod checkpoint;
mod failure;
pub mod figures;
mod fork;
mod last_error;
mod logging;
mod memory;
mod metrics;
mod numbered;
mod options;
mod pool;
mod private;
pub mod ready;
mod recording;
mod registry;
pub mod scopes;
mod segment;
mod segment_contents;
mod segment_place;
mod segments;
mod sleep;
mod sleeping;
mod snapshot;
#[allow(unsafe_code, reason = "the handle of a caller's CUDA stream is used as it is")]
mod streams;
mod table;
mod tags;
mod torch;
mod traces;
mod uses;

pub use abi::*;
pub use broker::*;
pub use broker_run::*;
pub use failure::Status;
pub use figures::Stats;
pub use logging::*;
pub use options::{is_option, keys};
pub use segment_contents::*;
pub use segments::*;
pub use sleep::{CopyCallback, SleepReport};
pub use torch::*;
pub use traces::*;
