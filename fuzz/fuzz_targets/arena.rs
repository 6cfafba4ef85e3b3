//! Any bytes are a history of operations on an arena, compared with its naive twin after each.
#![no_main]

#[path = "../../tests/history/mod.rs"]
mod history;

use history::{History, Operation};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<[u8; 6]>)| {
    let (layout, steps) = input;
    let alignment = 1 << (layout % 10);
    let stable = u64::from(layout / 64) * 5000;
    let mut history = History::new(u64::from(layout) << 8, stable.min(u64::from(layout) << 6), alignment);
    for step in steps {
        history.apply(Operation::decode(step));
    }
});
