//! Any bytes as a trace of this crate's own format. They are refused, or mean what a naive second reader
//! says.
#![no_main]
#![allow(dead_code, reason = "each target reads one format")]

#[path = "../../extensions/trace/tests/readers/mod.rs"]
mod readers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| readers::check_csv(bytes));
