//! Helpers that the tests of several crates share.
//!
//! They use the backend contract and the host backend only, so a backend's tests build without the pool, and
//! no helper enables a feature of the library, except with the feature `pool`, which only builds of the whole workspace
//! have: `instances` compiles the pools that test programs share.
//!
//! - [`AuditDevice`] measures from below what a pool takes from its device.
//! - [`assert_causes_once`] checks the text of an error and of its causes.
//! - [`CLibraries`] compiles shared libraries.
//! - [`command`] and [`outcome`], [`printed`], [`rows`] or [`failed`] run the program under test, [`test_again`] and
//!   [`passed`] a test in another process, [`instructions`] a benchmark under valgrind.
//! - [`assert_tables_fit`] and [`assert_help_fits`] check what a program prints in terminals.
//! - [`close_gate`] keeps later work on a stream pending, [`hold`] uses memory meanwhile; [`streams`] creates streams.
//! - [`pattern`] is the byte sequence that test kernels write; [`Count`] counts mismatches in device memory.
//! - [`ask_at_each_record`] runs work beside a logger that asks for figures.
//! - [`BackendExt`] creates streams and memory of a device that works.
//! - [`fill`], [`copy`] and [`read`] access whole memories; [`every_kind_is_filled_copied_and_read`] and the next two
//!   are tests of memory that several backends have.
//! - [`samples`] reads metrics as Prometheus does, [`assert_metrics_together`] checks their order.
//! - [`require`], [`program`], [`has_virtual_memory`] and [`skip`] skip a test whose device or program is missing,
//!   [`assert_unavailable`] checks the answers without one.
//! - [`setting_texts`] has values of each setting of a pool.
//! - [`Tap`] is a hook of a closure, [`gate`] a function that blocks.
//! - [`until`] waits for what other threads do.
//! - [`in_child`] runs code in a forked child, [`while_busy`] while other threads work.

mod audit;
mod c_library;
mod causes;
#[cfg(unix)]
mod child;
mod count;
mod exposition;
mod hook;
#[cfg(feature = "pool")]
pub mod instances;
mod logging;
mod memory;
mod pattern;
mod programs;
mod require;
mod setting;
mod streams;
mod terminals;
mod until;

pub use audit::{AuditDevice, AuditMemory};
pub use c_library::CLibraries;
pub use causes::assert_causes_once;
#[cfg(unix)]
pub use child::{assert_forked, end_at_once, in_child, in_child_that_ends, while_busy};
pub use count::Count;
pub use exposition::{assert_metrics_together, samples};
pub use hook::{Tap, gate};
pub use logging::ask_at_each_record;
pub use memory::{
    BackendExt, copy, every_kind_is_filled_copied_and_read, fill,
    memory_is_allocated_and_dropped_on_many_threads, read, threads_that_drop_memory_in_use_are_not_refused,
};
pub use pattern::pattern;
#[cfg(target_os = "linux")]
pub use programs::interrupted;
pub use programs::{
    command, failed, instructions, is_inside, outcome, passed, printed, rows, test_again, test_behind,
};
pub use require::{assert_unavailable, has_virtual_memory, program, require, skip, skip_backend, skipped};
pub use setting::setting_texts;
pub use streams::{close_gate, hold, streams};
pub use terminals::{assert_help_fits, assert_tables_fit};
pub use until::until;
