//! Any bytes are calls of a pool whose children sleep, compared with an exact model after each.
#![no_main]

#[path = "../../extensions/sleep/tests/sleep/model.rs"]
mod model;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    model::check(input);
});
