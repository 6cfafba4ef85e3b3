//! Allocations that are refused while memory was dropped and is not free yet.

use crate::BackendError;

/// The most waits of one allocation: other threads may take what it waited for.
const MOST_WAITS: usize = 16;

/// Attempts an allocation. When it is out of memory, waits for dropped memory to become free and repeats the
/// attempt.
///
/// `dropped` returns the number of bytes that were dropped and are not yet free; `wait` blocks until they are free.
/// The result is final after two consecutive failures with no dropped bytes, or after 16 waits.
///
/// ```
/// use vrampool_backend::{BackendError, spi::allocate_with_dropped};
/// use std::cell::Cell;
/// let (dropped, free) = (Cell::new(64), Cell::new(0));
/// let wait = || Ok(free.set(free.get() + dropped.take()));
/// let take = || match free.get() {
///     64.. => Ok(()),
///     free => Err(BackendError::out_of_memory(64, Some(free))),
/// };
/// assert!(take().is_err());
/// allocate_with_dropped(|| dropped.get(), wait, take)?;
/// # Ok::<(), BackendError>(())
/// ```
///
/// # Errors
/// The last attempt's; else those of `wait`.
pub fn allocate_with_dropped<T>(
    dropped: impl Fn() -> u64,
    wait: impl Fn() -> Result<(), BackendError>,
    attempt: impl Fn() -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    let (mut answer, mut was_none) = (attempt(), false);
    for _ in 0..MOST_WAITS {
        if !answer.as_ref().is_err_and(BackendError::is_out_of_memory) {
            break;
        }
        // All may have become free since the refusal, and other threads may have dropped more.
        let is_none = dropped() == 0;
        if is_none && was_none {
            break;
        }
        was_none = is_none;
        wait()?;
        answer = attempt();
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The answer, and how often it was attempted.
    fn attempts(dropped: impl Fn(u32) -> u64, serves: impl Fn(u32) -> bool) -> (bool, u32) {
        let count = Cell::new(0);
        let attempt = || {
            count.set(count.get() + 1);
            if serves(count.get()) { Ok(()) } else { Err(BackendError::out_of_memory(1, None)) }
        };
        let answer = allocate_with_dropped(|| dropped(count.get()), || Ok(()), attempt);
        (answer.is_ok(), count.get())
    }

    #[test]
    fn a_refusal_is_believed_when_nothing_is_dropped_twice() {
        assert_eq!(attempts(|_| 0, |_| true), (true, 1));
        assert_eq!(attempts(|_| 0, |_| false), (false, 2));
        assert_eq!(attempts(|_| 0, |attempt| attempt == 2), (true, 2));
        // Others drop and take it.
        assert_eq!(attempts(|attempt| u64::from(attempt % 2 == 0), |attempt| attempt == 7), (true, 7));
        // They go on for ever.
        assert_eq!(attempts(|_| 1, |_| false), (false, 1 + MOST_WAITS as u32));
    }

    #[test]
    fn other_errors_end_it() {
        let invalid = || BackendError::invalid("bytes", "odd");
        let answer = allocate_with_dropped(|| 1, || Ok(()), || Err::<(), _>(invalid()));
        assert_eq!(answer, Err(invalid()));
        let full = || Err::<(), _>(BackendError::out_of_memory(1, None));
        assert_eq!(allocate_with_dropped(|| 1, || Err(invalid()), full), Err(invalid()));
    }
}
