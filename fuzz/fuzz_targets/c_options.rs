//! Any bytes as the options of a pool of the C library's. They are refused, or the pool is as a naive second
//! reader reads them.
#![no_main]

#[path = "../../bindings/c/tests/options/mod.rs"]
mod options;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    options::check(bytes);
});
