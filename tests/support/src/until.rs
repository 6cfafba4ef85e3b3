//! Waits for what other threads do.

use std::thread;
use std::time::{Duration, Instant};

/// Returns once `is_so` holds.
///
/// # Panics
///
/// If it does not hold within a minute: long enough for a loaded machine.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute");
        thread::yield_now();
    }
}
