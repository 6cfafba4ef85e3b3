//! Any bytes are calls of a broker and its clients, compared with an exact model after each.
#![no_main]

#[path = "../../extensions/broker/tests/broker/model.rs"]
mod model;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    model::check(input).expect("figures of the host");
});
