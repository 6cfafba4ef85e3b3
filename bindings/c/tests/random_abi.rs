//! Random calls of every function, right and wrong, by eight threads at once: no crash, no fault of the
//! library's own, no block in two hands, and nothing left in the end.
//!
//! Each sequence runs in a process of its own. `VRAMPOOL_CALLS` is how many calls there are in all,
//! `VRAMPOOL_SEED` where the random numbers start, `VRAMPOOL_NESTED` how many calls each callback makes:
//!
//!     VRAMPOOL_CALLS=10000000 cargo test -p vrampool-c --test random_abi
//!
//! `fuzz/fuzz_targets/c_calls.rs` makes the same calls as a fuzzer chooses.

mod declared;
mod random_calls;

use fastrand::Rng;
use random_calls::Choices;
use vrampool_test_support::{passed, test_again};

const THREADS: u64 = 8;
/// Calls of one thread in one process.
const CALLS: u64 = 2_500;
const CHILD: &str = "VRAMPOOL_TEST_CHILD";

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_calls_of_threads_are_answered_and_leave_nothing() {
    let mut nested = 0;
    let (calls, first) = (number("VRAMPOOL_CALLS").unwrap_or(200_000), number("VRAMPOOL_SEED").unwrap_or(1));
    let children = calls.div_ceil(THREADS * CALLS);
    for seed in first..first + children {
        let mut child = test_again("one_sequence");
        child.env(CHILD, seed.to_string());
        // Other drivers' faults are theirs, and to look for their devices takes a while.
        for drivers in ["OCL_ICD_VENDORS", "VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
            child.env(drivers, "/nonexistent");
        }
        let text = passed(&mut child);
        let of_callbacks = text.lines().find_map(|line| line.strip_suffix(" calls of callbacks"));
        nested += of_callbacks.and_then(|calls| calls.parse::<u64>().ok()).expect("it is printed");
    }
    println!("{calls} calls, and {nested} of callbacks");
    assert!(nested > calls / 100, "{nested} calls of callbacks");
}

/// What the processes do that the test above starts.
#[test]
fn one_sequence() {
    let Some(seed) = number(CHILD) else { return };
    let choices = |thread| Choices::Random(Rng::with_seed(seed * THREADS + thread), CALLS);
    let (failed, nested) = random_calls::sequence((0..THREADS).map(choices).collect());
    assert!(failed > 0, "wrong calls are refused");
    // After what the test harness wrote.
    println!("\n{nested} calls of callbacks");
}

/// A function that is new in the header is called, too.
#[test]
fn every_function_of_the_header_is_called() {
    let calls = [
        include_str!("random_calls/mod.rs"),
        include_str!("random_calls/blocks.rs"),
        include_str!("random_calls/brokers.rs"),
        include_str!("random_calls/pools.rs"),
        include_str!("random_calls/recordings.rs"),
        include_str!("random_calls/torch.rs"),
    ];
    let words = |calls: &'static str| calls.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let called: Vec<_> = calls.into_iter().flat_map(words).collect();
    let functions = declared::functions();
    assert!(functions.len() > 60, "{functions:?}");
    for function in functions {
        assert!(called.contains(&function), "{function} is not called: add it to random_calls");
    }
}
