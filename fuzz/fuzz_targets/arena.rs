//! Any bytes are a history of operations on an arena, compared with its naive twin after each.
#![no_main]

#[path = "../../tests/history/mod.rs"]
mod history;

use history::{History, Operation};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<[u8; 6]>)| {
    let (layout, steps) = input;
    let (capacity, alignment) = (u64::from(layout) << 13, 1 << (layout % 10));
    let stable = if layout < 64 { 0 } else { capacity / 4 };
    let mut history = History::new(capacity, stable, alignment);
    for step in steps {
        history.apply(Operation::decode(step));
    }
});
