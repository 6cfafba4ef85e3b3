//! Any bytes are a history of operations on an arena, compared with its naive twin after each. Returns how many
//! there were, once for every hundred thousand.
#![no_main]

#[path = "../../tests/history/mod.rs"]
mod history;

use history::{History, Operation};
use libfuzzer_sys::fuzz_target;
use std::sync::atomic::{AtomicU64, Ordering};

static OPERATIONS: AtomicU64 = AtomicU64::new(0);

fuzz_target!(|input: (u8, Vec<[u8; 6]>)| {
    let (layout, steps) = input;
    let (capacity, alignment) = (u64::from(layout) << 13, 1 << (layout % 10));
    let stable = if layout < 64 { 0 } else { capacity / 4 };
    let mut history = History::new(capacity, stable, alignment);
    for step in steps {
        history.apply(Operation::decode(step));
        let operations = 1 + OPERATIONS.fetch_add(1, Ordering::Relaxed);
        if operations.is_multiple_of(100_000) {
            eprintln!("{operations} operations");
        }
    }
});
